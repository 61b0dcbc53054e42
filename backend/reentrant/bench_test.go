package reentrant_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// BenchmarkHolders has one more claim share a key that others share: acquire and release, and a
// renewal alone.
func BenchmarkHolders(b *testing.B) {
	for _, n := range []int{0, 10, 100, 1000} {
		server := redistest.Start(b)
		locker := reentrant.New(server.Client(b))
		claim := func(i int) *claimant {
			c := claims(b, locker, "k", fmt.Sprint("owner of ", i), fmt.Sprint("an ID of 26 characters, ", i), time.Hour)
			c.claim.MaxHolders = driver.Unlimited
			return c
		}
		for i := range n {
			claim(i).take()
		}
		one := claim(n)
		b.Run(fmt.Sprintf("others=%d/pair", n), func(b *testing.B) {
			for b.Loop() {
				one.take()
				require.True(b, one.release(driver.After{}))
			}
		})
		one.take()
		b.Run(fmt.Sprintf("others=%d/renew", n), func(b *testing.B) {
			for b.Loop() {
				require.True(b, one.renew())
			}
		})
	}
}
