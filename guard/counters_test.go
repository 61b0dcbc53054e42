package guard_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A countersStore has a fence counter for each key, as some stores have. It knows of each key
// which fences it has granted, reserved or received. Each key is a store in memory.
type countersStore struct {
	onRenew func(ctx context.Context, c driver.Claim, renew func() bool) (bool, error) // or nil

	mu      sync.Mutex
	keys    map[string]*memory.Locker
	known   map[string]uint64 // by key, the largest one
	granted map[string]uint64 // by key, that of the last grant
}

func newCountersStore() *countersStore {
	return &countersStore{keys: map[string]*memory.Locker{}, known: map[string]uint64{}, granted: map[string]uint64{}}
}

func (s *countersStore) of(key string) *memory.Locker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == nil {
		s.keys[key] = memory.New()
	}
	return s.keys[key]
}

// knows notes that the store knows a fence.
func (s *countersStore) knows(key string, fence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[key] = max(s.known[key], fence)
}

// largest returns the largest fence of the key that the store knows.
func (s *countersStore) largest(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// lastGranted returns the fence of the last grant of the key.
func (s *countersStore) lastGranted(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted[key]
}

// count sets the counter of a key ahead: the next fence is larger.
func (s *countersStore) count(t *testing.T, key string, last uint64) {
	t.Helper()
	c := driver.Claim{Key: key, ID: "counter", TTL: time.Second, Fence: last, MaxHolders: driver.Unlimited}
	grant, err := s.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, last, grant.Fence)
	_, err = s.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
}

func (s *countersStore) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	grant, err := s.of(c.Key).TryAcquire(ctx, c)
	if err == nil && grant.State == driver.Granted {
		s.knows(c.Key, grant.Fence+uint64(grant.Reserved))
		s.mu.Lock()
		s.granted[c.Key] = grant.Fence
		s.mu.Unlock()
	}
	return grant, err
}

func (s *countersStore) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	renew := func() bool {
		held, err := s.of(c.Key).Renew(context.WithoutCancel(ctx), c)
		if err == nil && held {
			s.knows(c.Key, c.Fence)
		}
		return held
	}
	if s.onRenew == nil {
		return renew(), nil
	}
	return s.onRenew(ctx, c, renew)
}

func (s *countersStore) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return s.of(c.Key).Release(ctx, c, after)
}

func (s *countersStore) Describe() driver.Description { return memory.New().Describe() }

func (s *countersStore) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	return s.of(key).Subscribe(key, id, notify)
}

// fence returns the fence that the store has for the claim, or 0 if the claim is lost.
func (s *countersStore) fence(t *testing.T, key, id string) uint64 {
	t.Helper()
	info, err := s.of(key).Show(t.Context(), key)
	require.NoError(t, err)
	for _, h := range info.Holders {
		if h.ID == id {
			return h.Fence
		}
	}
	return 0
}
