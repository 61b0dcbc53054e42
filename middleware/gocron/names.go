package guardgocron

import (
	"context"
	"errors"
	"sync"
)

// errSharedName says that two jobs of one process have one name, and so one lock.
var errSharedName = errors.New("two jobs of this process have this name, so each runs at some of its ticks only: " +
	"name each job (gocron.WithName); without a name, all jobs that a loop makes have the name of one function")

// names notices that two jobs have one name. gocron gives a Locker no more than the name, but with
// it the context of the job, which lasts as long as the job. It is safe for concurrent use.
type names struct {
	mu   sync.Mutex
	jobs map[string]*jobName
}

// A jobName is what is known of a name.
type jobName struct {
	ends   <-chan struct{} // closed when the job that had the name first ends
	shared bool            // another job has it, too
	warned bool
}

// note notes that the job with this context has the name. shared means that another job of this
// process has it, too, and first that this is news.
func (n *names) note(ctx context.Context, name string) (shared, first bool) {
	ends := ctx.Done()
	if ends == nil {
		return false, false // gocron has no such context
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.jobs == nil {
		n.jobs = map[string]*jobName{}
	}
	j := n.jobs[name]
	switch {
	case j == nil:
		n.jobs[name] = &jobName{ends: ends}
		return false, false
	case j.ends == ends:
		return j.shared, false
	case closed(j.ends):
		j.ends, j.shared = ends, false
		return false, false
	}
	first = !j.warned
	j.shared, j.warned = true, true
	return true, first
}

func closed(ends <-chan struct{}) bool {
	select {
	case <-ends:
		return true
	default:
		return false
	}
}
