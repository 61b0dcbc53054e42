package etcd_test

import (
	"testing"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// A fleet moves from another backend to etcd, and back.
func TestWeekly_both(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := etcdtest.Start(t)
	for name, order := range map[string]func(other, etcd guard.Locker) guard.Locker{
		"to":   func(other, etcd guard.Locker) guard.Locker { return both.New(other, etcd) },
		"from": func(other, etcd guard.Locker) guard.Locker { return both.New(etcd, other) },
	} {
		t.Run(name, func(t *testing.T) {
			s := suite(t, server)
			on := s.New
			s.New = func(t testing.TB) guard.Locker { return order(memory.New(), on(t)) }
			s.Again, s.Flush, s.Inspects, s.Notifies, s.Shares = nil, nil, false, false, nil
			guardtest.Run(t, s)
		})
	}
}
