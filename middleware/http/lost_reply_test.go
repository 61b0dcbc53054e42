package guardhttp_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// The store has the record, but its reply to that is lost: the guard writes the record again, and a
// retry gets the first answer.
func TestLost_aReplyToTheRecordCostsNoSecondRun(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int{"no reply": 0, "one reply": 1, "two replies": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inOutage(t, func(t *testing.T, s *outageSite) {
				s.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
					held, err := s.Inner.Release(ctx, c, after)
					if n <= lost {
						return false, guardtest.Fail(driver.KindTimeout)
					}
					return held, err
				}
				first := call(s.handler, "/", "order-1", "X-Tenant", "acme")
				require.Equal(t, http.StatusCreated, first.Code)
				require.Equal(t, "run 1", first.Body.String())
				require.Equal(t, lost+1, s.releases())

				again := call(s.handler, "/", "order-1", "X-Tenant", "acme")
				require.Equal(t, http.StatusCreated, again.Code)
				require.Equal(t, "run 1", again.Body.String())
				require.Equal(t, "true", again.Header().Get("Idempotency-Replayed"))
				require.EqualValues(t, 1, s.runs.Load())
				require.Equal(t, string(idempotency.Replayed), string(s.seen.seen()[1].Result))
			})
		})
	}
}

func (s *outageSite) releases() (n int) {
	for _, c := range s.Calls() {
		if c.Op == driver.OpRelease {
			n++
		}
	}
	return n
}
