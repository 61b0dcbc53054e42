package failover_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// memberEnv makes the test binary a member: a process that uses the store.
const memberEnv = "ONERUN_FAILOVER_MEMBER"

const (
	// patience is how long a member waits for a grant: a store may be away for that long.
	patience = 50 * time.Second
	// attempt is how long one call may take.
	attempt = 2 * time.Second
	// pause is between two calls that fail.
	pause = 5 * time.Millisecond
)

// A member is a process with a Guard. It obeys the lines that it reads.
type member struct {
	locker guard.Locker
	guard  *guard.Guard
	close  func()
	lease  *guard.Lease
	ended  chan int64 // when the context of the lease has ended
	extra  []*guard.Lease
}

// serve is the main function of a member.
func serve() {
	m := &member{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if err := m.obey(word, rest); err != nil {
			fmt.Println("fails:", word, err)
		}
	}
}

func (m *member) obey(word, rest string) error {
	switch word {
	case "open":
		return m.open(rest)
	case "hold":
		return m.hold(strings.Fields(rest))
	case "ask": // until the store answers
		return m.ask(rest, false)
	case "take": // until the store grants
		return m.ask(rest, true)
	case "until":
		at := history.Now()
		if !m.lease.Valid() {
			at = <-m.ended
		}
		fmt.Println("until", at)
	case "release":
		m.release()
		fmt.Println("released")
	case "break":
		return m.breaks(rest)
	case "write":
		return m.write()
	}
	return nil
}

// open begins to use a store, and no longer the one before.
func (m *member) open(text string) error {
	if m.close != nil {
		m.close()
	}
	var l link
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	locker, closeClients, err := l.open()
	if err != nil {
		return err
	}
	m.locker = locker
	if m.guard, err = guard.New(locker, guard.WithTTL(l.TTL)); err != nil {
		return err
	}
	m.close = func() {
		g := m.guard
		go func() { // a release may be under way to a server that has ended
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			defer cancel()
			_ = g.Close(ctx)
			time.Sleep(attempt) // as in a service that goes on, a release may have to be repeated
			closeClients()
		}()
	}
	// It connects. A replica refuses the call.
	if lease, err := m.acquire(fmt.Sprint("first call of ", os.Getpid())); err == nil {
		_ = lease.Release(context.Background())
	}
	fmt.Println("opened")
	return nil
}

// acquire makes one call.
func (m *member) acquire(key string) (*guard.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	return m.guard.Acquire(ctx, key)
}

// hold acquires a key, and kills processes once it has the answer: key, pid and so on.
func (m *member) hold(args []string) error {
	var victims []int
	for _, arg := range args[1:] {
		pid, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		victims = append(victims, pid)
	}
	for began := time.Now(); ; time.Sleep(pause) {
		lease, err := m.acquire(args[0])
		if err == nil {
			for _, pid := range victims {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
			m.has(lease)
			fmt.Println("granted", lease.Fence(), history.Now())
			return nil
		}
		if time.Since(began) > patience {
			return err
		}
	}
}

// has notes a lease, and when its context ends.
func (m *member) has(lease *guard.Lease) {
	ended := make(chan int64, 1)
	m.lease, m.ended = lease, ended
	context.AfterFunc(lease.Context(), func() { ended <- history.Now() })
}

// ask calls until the store grants the key, or says that it is busy.
func (m *member) ask(key string, granted bool) error {
	for began := time.Now(); ; time.Sleep(pause) {
		lease, err := m.acquire(key)
		switch {
		case err == nil:
			fmt.Println("granted", lease.Fence(), history.Now())
			m.extra = append(m.extra, lease)
			return nil
		case errors.Is(err, guard.ErrBusy) && !granted:
			fmt.Println("busy", 0, history.Now())
			return nil
		case time.Since(began) > patience:
			return err
		}
	}
}

// release ends all that the member holds. It may be lost.
func (m *member) release() {
	for _, lease := range append(m.extra, m.lease) {
		if lease != nil {
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			_ = lease.Release(ctx)
			cancel()
		}
	}
	m.lease, m.extra = nil, nil
}

// breaks frees a key at once, as an operator does.
func (m *member) breaks(key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	store := m.locker.(driver.Inspector)
	info, err := store.Show(ctx, key)
	for _, h := range info.Holders {
		if err == nil {
			_, err = store.Break(ctx, key, h.ID, driver.Break{ID: driver.NewBrokenID(), Now: true})
		}
	}
	if err == nil {
		fmt.Println("broken")
	}
	return err
}

// write acquires and releases keys until the process is killed.
func (m *member) write() error {
	// A process that was killed may have left its keys held.
	written := 0
	for i := 0; ; i++ {
		lease, err := m.acquire(fmt.Sprint("written by ", os.Getpid(), " ", i%10))
		if err != nil {
			continue
		}
		_ = lease.Release(context.Background())
		if written++; written == 1 {
			fmt.Println("writing")
		}
	}
}
