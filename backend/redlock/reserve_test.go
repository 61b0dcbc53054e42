package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// answers returns nodes of which the i-th grants what the i-th grant says. They answer one after
// the other.
func answers(grants ...driver.Answer) (nodes []*guardtest.Scripted, lockers []guard.Locker) {
	for i, g := range grants {
		g.State = driver.Granted
		n := &guardtest.Scripted{OnAcquire: func(_ context.Context, _ int, c driver.Claim) (driver.Answer, error) {
			if c.Fence != 0 {
				return driver.Answer{State: driver.Granted, Fence: c.Fence, Reserved: c.Fences.Reserve}, nil
			}
			time.Sleep(time.Duration(i+1) * time.Millisecond)
			return g, nil
		}}
		nodes, lockers = append(nodes, n), append(lockers, n)
	}
	return nodes, lockers
}

// asked returns the fence and the reservation of each call of that kind.
func asked(n *guardtest.Scripted, op driver.Op) (all [][2]int) {
	for _, call := range n.Calls() {
		if call.Op == op {
			all = append(all, [2]int{int(call.Claim.Fence), call.Claim.Fences.Reserve})
		}
	}
	return all
}

func TestTryAcquire_reservesWhatAllOfAMajorityHaveReserved(t *testing.T) {
	for name, c := range map[string]struct {
		grants  []driver.Answer
		want    driver.Answer
		renewed map[int][][2]int // by node
	}{
		"all grant one fence": {
			grants: []driver.Answer{{Fence: 70, Reserved: 9}, {Fence: 70, Reserved: 5}, {Fence: 70, Reserved: 8}},
			want:   driver.Answer{State: driver.Granted, Fence: 70, Reserved: 5},
		},
		"one reserves nothing": {
			grants: []driver.Answer{{Fence: 70, Reserved: 9}, {Fence: 70}, {Fence: 70, Reserved: 8}},
			want:   driver.Answer{State: driver.Granted, Fence: 70},
		},
		"one reserves more than it was asked for": {
			grants: []driver.Answer{{Fence: 70, Reserved: 99}, {Fence: 70, Reserved: 99}, {Fence: 70, Reserved: 99}},
			want:   driver.Answer{State: driver.Granted, Fence: 70, Reserved: 10},
		},
		"those with a lower fence reserve as many as those with the highest": {
			grants:  []driver.Answer{{Fence: 60, Reserved: 10}, {Fence: 70, Reserved: 4}, {Fence: 60, Reserved: 1}},
			want:    driver.Answer{State: driver.Granted, Fence: 70, Reserved: 4},
			renewed: map[int][][2]int{0: {{70, 4}}, 2: {{70, 4}}},
		},
		"a claim that is repeated reserves nothing": {
			grants:  []driver.Answer{{Fence: 70, Held: true}, {Fence: 70, Held: true}, {Fence: 70, Held: true}},
			want:    driver.Answer{State: driver.Granted, Fence: 70, Held: true},
			renewed: nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := &guardtest.Scripted{OnAcquire: func(context.Context, int, driver.Claim) (driver.Answer, error) {
					return driver.Answer{}, guardtest.Fail(driver.KindConnection)
				}}
				nodes, lockers := answers(c.grants...)
				claim := claimOf("k", "a")
				claim.Fences.Reserve = 10
				g, err := redlock.New(append(lockers, down, &guardtest.Scripted{OnAcquire: down.OnAcquire})).TryAcquire(t.Context(), claim)
				require.NoError(t, err)
				require.Equal(t, c.want, g)
				synctest.Wait()
				for i, n := range nodes {
					require.Equal(t, c.renewed[i], asked(n, driver.OpRenew), "node %d", i)
				}
			})
		})
	}
}

func TestTryAcquire_aNodeThatTakesTheLeaseInAgainReservesWhatTheLeaseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, lockers := answers(
			driver.Answer{Fence: 70, Reserved: 4}, driver.Answer{Fence: 70, Reserved: 4}, driver.Answer{Fence: 80, Reserved: 10})
		claim := claimOf("k", "a")
		claim.Fences.Reserve = 10
		g, err := redlock.New(lockers).TryAcquire(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, driver.Answer{State: driver.Granted, Fence: 70, Reserved: 4}, g)
		time.Sleep(time.Second) // until the third node has answered and its grant was replaced
		require.Equal(t, [][2]int{{0, 10}, {70, 4}}, asked(nodes[2], driver.OpAcquire))
	})
}

func TestRenew_aNodeThatTakesTheLeaseInAgainReservesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, lockers := answers(driver.Answer{}, driver.Answer{}, driver.Answer{})
		nodes[1].OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
		claim := claimOf("k", "a")
		claim.Fence, claim.Fences.Reserve = 75, 3 // handed off a few times
		held, err := redlock.New(lockers).Renew(t.Context(), claim)
		require.NoError(t, err)
		require.True(t, held)
		synctest.Wait()
		require.Equal(t, [][2]int{{75, 3}}, asked(nodes[0], driver.OpRenew))
		require.Equal(t, [][2]int{{75, 3}}, asked(nodes[1], driver.OpAcquire))
	})
}
