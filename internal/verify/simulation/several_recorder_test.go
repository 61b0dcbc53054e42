package simulation_test

import (
	"context"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A severalRecorder is a recorder around a Locker that takes several claims in one request.
type severalRecorder struct {
	batchRecorder
	several driver.BatchAcquirer
}

var _ driver.BatchAcquirer = severalRecorder{}

func (r severalRecorder) AcquireBatch(ctx context.Context, claims []driver.Claim, report func(int, driver.Answer, error)) {
	calls := r.beginAll("acquire", claims)
	r.several.AcquireBatch(ctx, claims, func(i int, grant driver.Answer, err error) {
		calls[i].acquired(grant, err)
		report(i, grant, err)
	})
}

func (r severalRecorder) ReleaseBatch(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
	for _, c := range claims {
		r.process.world.beliefs.releasing(c.ID)
	}
	calls := r.beginAll("release", claims)
	r.several.ReleaseBatch(ctx, claims, func(i int, held bool, err error) {
		calls[i].released(driver.After{}, held, err)
		report(i, held, err)
	})
}

func (r recorder) beginAll(op string, claims []driver.Claim) []call {
	r.process.step(claims[0].ID)
	calls := make([]call, len(claims))
	for i, c := range claims {
		if calls[i] = r.begin(op, c); op == "acquire" {
			r.process.world.beliefs.asks(c)
		}
	}
	return calls
}
