package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
)

const (
	// maxWrites is how many writes a transaction makes at most.
	maxWrites = 256
	// pauseAfter is the pause between two transactions of a process. Other processes try again and
	// again, and find the file unlocked then.
	pauseAfter = time.Millisecond
	// noticeAfter is how long a transaction has tried to begin when another one must be writing. It
	// begins without the disk, so it takes a fraction of a millisecond if the file is not locked.
	noticeAfter = 20 * time.Millisecond
)

// A writer makes all writes of a Locker. SQLite has one writer at a time, and each transaction
// waits for the disk, so the writes that wait go into one transaction. Its goroutine ends when
// there is nothing to write.
type writer struct {
	db     *sql.DB
	locked atomic.Int64 // since when a transaction tries to begin, in nanoseconds since 1970, or 0

	mu      sync.Mutex
	first   []*write // renewals
	rest    []*write
	running bool
	idle    context.CancelFunc // ends the attempt to begin, if nothing waits any more
}

// A write is a part of a transaction.
type write struct {
	ctx   context.Context // of its caller
	first bool            // it is a renewal
	// run may be called again, in another transaction.
	run  func(ctx context.Context, tx *sql.Conn) error
	done chan error // has one element when the transaction has ended
}

// A rowError is the error of a write that leaves the transaction as it was. After another error,
// such as that of a full disk, the other writes are made again without the one that has failed.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }

// do runs a write, and returns when it is committed, or has failed. It returns early if ctx ends
// before the write has begun, which then never begins.
func (w *writer) do(ctx context.Context, first bool, run func(ctx context.Context, tx *sql.Conn) error) error {
	job := &write{ctx, first, run, make(chan error, 1)}
	w.mu.Lock()
	list := w.listOf(job)
	*list = append(*list, job)
	if !w.running {
		w.running = true
		go w.serve()
	}
	w.mu.Unlock()
	select {
	case err := <-job.done:
		return err
	case <-ctx.Done():
	}
	if w.withdraw(job) {
		return ctx.Err()
	}
	return <-job.done
}

// listOf returns the list in which the write waits. w.mu must be held.
func (w *writer) listOf(job *write) *[]*write {
	if job.first {
		return &w.first
	}
	return &w.rest
}

// putBack puts writes in front of those that wait, unless their callers have left.
func (w *writer) putBack(jobs []*write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, job := range slices.Backward(jobs) {
		if err := job.ctx.Err(); err != nil {
			job.done <- err
			continue
		}
		list := w.listOf(job)
		*list = slices.Insert(*list, 0, job)
	}
}

// withdraw reports whether the write has not begun, and takes it out.
func (w *writer) withdraw(job *write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.listOf(job)
	i := slices.Index(*list, job)
	if i < 0 {
		return false
	}
	*list = slices.Concat((*list)[:i], (*list)[i+1:])
	if len(w.first)+len(w.rest) == 0 && w.idle != nil {
		w.idle()
	}
	return true
}

// take returns the writes of the next transaction, renewals first, without those whose callers have
// left.
func (w *writer) take(most int) (jobs []*write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range []*[]*write{&w.first, &w.rest} {
		for len(*list) > 0 && len(jobs) < most {
			job := (*list)[0]
			*list = (*list)[1:]
			if err := job.ctx.Err(); err != nil {
				job.done <- err
				continue
			}
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// serve runs transactions until nothing waits.
func (w *writer) serve() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		w.mu.Lock()
		w.running = len(w.first)+len(w.rest) > 0
		w.idle = cancel
		running := w.running
		w.mu.Unlock()
		if !running {
			cancel()
			return
		}
		var jobs []*write
		err := contain.Err(func() error { return w.transact(ctx, &jobs) })
		abandoned := ctx.Err() != nil // other writes may wait by now
		cancel()
		if len(jobs) == 0 && err != nil && !abandoned { // it could not begin
			jobs = w.take(1 << 30)
		}
		for _, job := range jobs {
			job.done <- err
		}
		time.Sleep(pauseAfter)
	}
}

// transact begins a transaction, runs the writes that wait then, and commits. ctx ends when nothing
// waits any more before it has begun.
func (w *writer) transact(ctx context.Context, jobs *[]*write) (err error) {
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer w.locked.Store(0)
	own := context.WithoutCancel(ctx) // a statement that is cut off may have begun a transaction
	// With a busy_timeout, the statement itself waits before it says that the file is locked.
	w.locked.Store(time.Now().UnixNano())
	err = whileLocked(ctx, func() error {
		_, err := conn.ExecContext(own, `BEGIN IMMEDIATE`)
		return err
	})
	if err != nil {
		return err
	}
	w.locked.Store(0)
	committed := false
	defer func() {
		if committed {
			return
		}
		_, failed := conn.ExecContext(own, `ROLLBACK`)
		// SQLite rolls back by itself after some errors, such as that of a full disk.
		if failed != nil && !strings.Contains(failed.Error(), "no transaction is active") {
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // its state is unknown
		}
	}()
	*jobs = w.take(maxWrites)
	for i := 0; i < len(*jobs); {
		job := (*jobs)[i]
		err := job.run(own, conn)
		if err == nil {
			i++
			continue
		}
		*jobs = slices.Delete(*jobs, i, i+1)
		var row rowError
		if errors.As(err, &row) {
			job.done <- row.error
			continue
		}
		job.done <- err
		w.putBack(*jobs)
		*jobs = nil
		return nil
	}
	_, err = conn.ExecContext(own, `COMMIT`)
	committed = err == nil
	return err
}

// lockedFor returns for how long writes have waited for another connection that writes, or 0.
func (w *writer) lockedFor() time.Duration {
	since := w.locked.Load()
	if since == 0 {
		return 0
	}
	if waited := time.Since(time.Unix(0, since)); waited >= noticeAfter {
		return waited
	}
	return 0
}
