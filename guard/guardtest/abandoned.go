package guardtest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// abandonedChecks are about a Guard on the backend, of which a call gives up while the store's
// answer is on its way. Nothing of the call may stay in the store.
func abandonedChecks() []check {
	return []check{
		{name: "a call that gave up as it was granted the key leaves it free", run: grantedInVain},
		{name: "a call that gave up as it was queued leaves the queue", needs: func(b Backend) bool { return b.Queues }, run: queuedInVain},
		{name: "a writer that gave up as it was refused keeps no reader away", needs: func(b Backend) bool { return len(b.Shares) > 0 }, run: wantedInVain},
	}
}

// A leaver is a Locker whose answers to claims arrive just after the caller has left.
type leaver struct {
	driver.Wrapper
	leave func()
}

func (l leaver) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	defer l.leave()
	return l.Locker.TryAcquire(ctx, c)
}

// callInVain makes a call for the key that leaves as described. It returns when the Guard has
// undone what the store has done for the call.
func (s *subject) callInVain(key string, opts ...guard.Option) {
	s.Helper()
	ctx, leave := context.WithCancel(s.Context())
	defer leave()
	g, err := guard.New(leaver{driver.Wrapper{Locker: s.there.locker}, leave}, append(opts, guard.WithTTL(long))...)
	require.NoError(s, err)
	err = g.Do(ctx, key, func(context.Context) error { return nil })
	require.ErrorIs(s, err, context.Canceled)
	require.NoError(s, g.Close(s.Context()))
	s.there.settled(s)
}

func grantedInVain(s *subject) {
	s.callInVain("key")
	s.here.mustAcquire(s.claim("key"))
}

func queuedInVain(s *subject) {
	s.here.mustAcquire(s.queued())
	s.callInVain("key", guard.WithFair(), guard.WithWait(guard.Forever))
	s.here.requireQueued(s.queued(), 0)
}

func wantedInVain(s *subject) {
	for _, maxHolders := range s.backend.Shares {
		k := key("in vain", maxHolders)
		s.here.mustAcquire(s.shared(k, maxHolders))
		s.callInVain(k, guard.WithWait(guard.Forever))
		s.here.mustAcquire(s.shared(k, maxHolders))
	}
}
