package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Run is one run of an example: what the flags say, and what it runs on.
type Run struct {
	// Guarded is false for -guard=off.
	Guarded bool
	// Backend is for the guards of the child processes.
	Backend Backend
	// Namespace is for the keys of this run: on a Redis that is used again, a second run must not
	// find its work done by the first.
	Namespace string
	// DB is the database, Database the file it is in, for child processes to open.
	DB       *Database
	Database string
	// Crew is the child processes, none at first.
	Crew *Crew

	begin     time.Time
	stopRedis func() // of those that are embedded
	hidePage  func() error
	scratch   string // a directory to remove, or ""
}

// newRun makes everything ready. The caller must call end.
func (e Example) newRun(ctx context.Context, f flags) (*Run, error) {
	run := &Run{
		Guarded:   bool(f.guarded),
		Namespace: e.Name + "-" + strings.ToLower(rand.Text()[:8]),
		begin:     time.Now(),
		hidePage:  func() error { return nil },
	}
	if err := run.findBackend(ctx, f); err != nil {
		return nil, err
	}
	run.Crew = newCrew(run)
	if err := run.createDatabase(ctx, f.database, e.Buckets); err != nil {
		return nil, errors.Join(err, run.end())
	}
	fmt.Printf("guard: %s   backend: %s   Redis: %s   database: %s\n\n", &f.guarded, &f.backend,
		cmp.Or(f.redis.String(), fmt.Sprintf("%d embedded (miniredis)", len(run.Backend.Servers))),
		cmp.Or(f.database, "temporary (bbolt)"))
	if f.page != "" {
		if err := run.showPage(f.page); err != nil {
			return nil, errors.Join(err, run.end())
		}
	}
	return run, nil
}

// findBackend finds servers for the backend, and checks that they answer. They are the servers
// that the flags name, or embedded ones.
func (r *Run) findBackend(ctx context.Context, f flags) (err error) {
	r.Backend, r.stopRedis = Backend{Name: f.backend, Servers: f.redis}, func() {}
	if len(f.redis) > 0 {
		if err := r.Backend.check(ctx, r.Namespace); err != nil {
			return fmt.Errorf("-redis %s: %w", &f.redis, err)
		}
		return nil
	}
	servers := 1
	if f.backend == "redlock" {
		servers = 5
	}
	r.Backend.Servers, r.stopRedis, err = startRedis(servers)
	return err
}

// createDatabase makes the database in the file, or in one of its own where file is empty.
func (r *Run) createDatabase(ctx context.Context, file string, buckets []string) (err error) {
	if file == "" {
		if r.scratch, err = os.MkdirTemp("", "onerun-example-*"); err != nil {
			return fmt.Errorf("make a directory for the database: %w", err)
		}
		file = filepath.Join(r.scratch, "example.db")
	}
	r.Database = file
	r.DB, err = createDatabase(ctx, file, buckets)
	return err
}

// Say prints what who is doing, with the time since the run began.
func (r *Run) Say(who, format string, args ...any) {
	fmt.Printf("%6.2fs  %-10s %s\n", time.Since(r.begin).Seconds(), who, fmt.Sprintf(format, args...))
}

// end ends the children, and what they ran on.
func (r *Run) end() error {
	r.Crew.end()
	err := r.hidePage()
	r.stopRedis()
	if r.scratch == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(r.scratch))
}
