package single

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestLiteral_eachScriptHasAFormForServicesThatParseLua(t *testing.T) {
	for _, d := range []dialect{{}, {sharded: true}, {plain: true}, {sharded: true, plain: true}} {
		s := d.scripts()
		for _, p := range []redisstore.Scripts{s.program.Alone, s.program.Shared} {
			for i, script := range []*redisstore.Script{p.Acquire, p.Renew, p.Release, p.Acquire.Queued, p.Release.Queued} {
				requireLiteral(t, script, fmt.Sprintf("%+v %d", d, i))
			}
		}
		for _, script := range []*redisstore.Script{s.inspection.Show, s.inspection.Break, s.inspection.Break.Queued} {
			requireLiteral(t, script, fmt.Sprintf("%+v", d))
		}
	}
}

func requireLiteral(t *testing.T, s *redisstore.Script, what string) {
	t.Helper()
	source, _ := s.Literal()
	for _, lenient := range []bool{false, true} {
		require.Empty(t, redistest.Refusal(source, lenient), "%s:\n%s", what, source)
	}
}
