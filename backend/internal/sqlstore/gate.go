package sqlstore

import (
	"container/list"
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// statementGrace is for how long a statement goes on whose caller has left. A driver ends a
// statement by closing its connection, and the next one then has to wait for a new one.
const statementGrace = 3 * time.Second

// A gate bounds how many calls use a connection of a pool. One connection is for renewals alone. No
// other call enters if it would take a connection that a renewal needs. So renewals never wait for
// other statements. If the pool has one connection, a renewal waits for one statement.
type gate struct {
	db *sql.DB

	mu       sync.Mutex
	inside   int
	renewals int       // they enter without waiting
	waiting  list.List // of chan struct{}, each is closed when its call may enter
}

// hasRoom reports whether one more may enter. SetMaxOpenConns can change that at any time.
func (g *gate) hasRoom() bool {
	switch most := g.db.Stats().MaxOpenConnections; most {
	case 0:
		return true
	case 1:
		return g.inside+g.renewals == 0
	default:
		return g.inside+max(g.renewals, 1) < most
	}
}

// enter returns at once for a renewal, and otherwise when there is room, or with an error when ctx
// has ended. The caller must call leave.
func (g *gate) enter(ctx context.Context, op driver.Op) error {
	g.mu.Lock()
	if op == driver.OpRenew {
		g.renewals++
		g.mu.Unlock()
		return nil
	}
	if g.waiting.Len() == 0 && g.hasRoom() {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	place := g.waiting.PushBack(admitted)
	g.mu.Unlock()
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-admitted:
		g.inside--
		g.admit()
	default:
		g.waiting.Remove(place)
	}
	return ctx.Err()
}

func (g *gate) leave(op driver.Op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if op == driver.OpRenew {
		g.renewals--
	} else {
		g.inside--
	}
	g.admit()
}

// admit lets calls enter while there is room. g.mu must be held.
func (g *gate) admit() {
	for g.waiting.Len() > 0 && g.hasRoom() {
		g.inside++
		close(g.waiting.Remove(g.waiting.Front()).(chan struct{}))
	}
}
