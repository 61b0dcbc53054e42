package reentrant

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestLiteral_eachScriptHasAFormForServicesThatParseLua(t *testing.T) {
	for _, p := range []redisstore.Scripts{aloneScripts, sharedScripts} {
		for _, s := range []*redisstore.Script{p.Acquire, p.Renew, p.Release, p.Acquire.Queued, p.Release.Queued} {
			requireLiteral(t, s, true)
		}
	}
	for _, s := range []*redisstore.Script{inspection.Show, inspection.Break, inspection.Break.Queued} {
		requireLiteral(t, s, true)
	}
	// its scripts compute the names of Redisson's keys
	requireLiteral(t, readWriteScripts.Acquire, false)
}

func requireLiteral(t *testing.T, s *redisstore.Script, has bool) {
	t.Helper()
	source, _ := s.Literal()
	for _, lenient := range []bool{false, true} {
		why := redistest.Refusal(source, lenient)
		if has || lenient {
			require.Empty(t, why, source)
		} else {
			require.NotEmpty(t, why, source)
		}
	}
}
