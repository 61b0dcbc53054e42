package backend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestSuite_serviceThatParsesLua(t *testing.T) {
	t.Parallel()
	onEach(t, guardtest.RunExclusion, parsingPlace)
}

func TestWeekly_suiteOnAServiceThatParsesLua(t *testing.T) {
	redistest.Long(t)
	onEach(t, guardtest.Run, parsingPlace)
}

func parsingPlace(t *testing.T) place {
	server := redistest.Start(t)
	proxy := redistest.StartRefusing(t, server.Addr(), false)
	flush := flusher(t, server)
	return place{
		func(t testing.TB) redis.UniversalClient { return behind(t, proxy) }, flush,
		func(s *guardtest.Backend) { s.Flush = flush },
	}
}

func TestServiceThatParsesLua_eachKindOfLockerWorks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, lenient := range []bool{false, true} {
		for name, open := range map[string]func(redis.UniversalClient) guard.Locker{
			"single":    backends["single"],
			"reentrant": backends["reentrant"],
			"single.WithoutBatching": func(c redis.UniversalClient) guard.Locker {
				return single.New(c, single.WithoutBatching())
			},
			"single.WithPlainKeys": func(c redis.UniversalClient) guard.Locker {
				return single.New(c, single.WithPlainKeys(func(k string) string { return "plain:" + k }))
			},
		} {
			t.Run(fmt.Sprintf("%s/lenient=%t", name, lenient), func(t *testing.T) {
				t.Parallel()
				rdb := behind(t, redistest.StartRefusing(t, server.Addr(), lenient))
				l := open(rdb)
				g, err := guard.New(l)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), settled)
				defer cancel()
				key := fmt.Sprint(name, lenient)
				require.NoError(t, g.Do(ctx, key, nothing, guard.WithOnce(time.Minute), guard.WithFair()))
				require.ErrorIs(t, g.Do(ctx, key, nothing), guard.ErrDone)
				require.NoError(t, g.Close(ctx))
				warner, _ := l.(driver.Warner)
				// a probe that a busy machine answers too late is repeated
				require.Eventually(t, func() bool {
					warnings := warner.Warnings(ctx)
					return len(warnings) == 1 && strings.Contains(warnings[0].Error(), "script_check_enable")
				}, settled, 100*time.Millisecond)
			})
		}
	}
}

func TestServiceThatParsesLua_namesTheSettingForWhatItRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, err := guard.New(reentrant.New(behind(t, redistest.StartRefusing(t, server.Addr(), false)), reentrant.WithReadWrite()))
	require.NoError(t, err)
	err = g.Do(t.Context(), "k", nothing)
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindUnsupported, failed.Kind)
	require.ErrorContains(t, err, "script_check_enable")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	_ = g.Close(t.Context()) // it cannot release what it does not have
	require.Zero(t, server.Calls(t)["eval"])
}
