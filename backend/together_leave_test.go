package backend_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestTogether_aCallerThatLeavesDoesNotEndTheScriptOfOthers(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, _ *redis.Client, _ func(string) string) {
		f.together(t, take("a", "id"), take("b", "id")) // the server learns the scripts
		for name, longest := range map[string]time.Duration{"with a deadline": time.Minute, "without one": 0} {
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				if longest > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, longest)
					defer cancel()
				}
				for range 10 {
					answers, together := f.leave(ctx)
					for _, a := range answers {
						require.NoError(t, a.err)
						require.Equal(t, driver.Granted, a.grant.State)
					}
					if together {
						return
					}
				}
				require.Fail(t, "they never went out as one command")
			})
		}
	})
}

// leave has three claims go out as one command, and the caller of the first leave before that
// reaches the server. It returns the others' answers, and whether all went together: if the
// machine has paused, they may not.
func (f *batcher) leave(ctx context.Context) (answers []answer, together bool) {
	f.sent++
	start := func(ctx context.Context, op driver.Op, key string, done func(driver.Answer, error)) {
		driver.AsyncOf(f.locker).Start(ctx, op, []driver.Claim{claim(key, "id")}, driver.After{}, func(_ int, a driver.Answer, err error) { done(a, err) })
	}
	var all sync.WaitGroup
	all.Add(4)
	came, open := f.gate.hold()
	start(ctx, driver.OpRelease, "k", func(driver.Answer, error) { all.Done() })
	<-came
	came, reach := f.gate.hold()
	leaver, leave := context.WithCancel(ctx)
	start(leaver, driver.OpAcquire, fmt.Sprint("leaver", f.sent), func(driver.Answer, error) { all.Done() })
	answers = make([]answer, 2)
	for i := range answers {
		start(ctx, driver.OpAcquire, fmt.Sprint("other", f.sent, i), func(grant driver.Answer, err error) {
			answers[i] = answer{grant: grant, err: err}
			all.Done()
		})
	}
	close(open)
	<-came
	leave()
	close(reach)
	all.Wait()
	return answers, len(f.gate.passed()) == 0
}
