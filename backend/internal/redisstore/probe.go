package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

// A probe finds out what one script may have the keys of several leases for. A proxy between the
// client and several servers may send a script to the server of its first key. The other leases
// would then be on a server on which nobody looks for them.
type probe struct {
	mu   sync.Mutex
	next time.Time     // when to try again
	wait time.Duration // before that
}

const (
	// probeKeys is how many keys a probe has: on how many servers they are is not known.
	probeKeys = 32
	// probeTTL is how long keys last that a proxy has put on a server where they cannot be found.
	probeTTL = 10 * time.Second
	// firstRetry and lastRetry bound the time after which a probe that has failed is made again.
	firstRetry, lastRetry = time.Second, time.Minute
)

// errProbe says that a probe has proved nothing. The connection is sound.
const errProbe refusal = "the server has lost the keys of a probe, or has answered too late"

// probeTags returns hash tags that are spread evenly over the slots of a Cluster.
var probeTags = sync.OnceValue(func() []string {
	found := make([]string, probeKeys)
	for n, missing := 0, probeKeys; missing > 0; n++ {
		tag := strconv.FormatInt(int64(n), 36)
		if part := Slot(tag) * probeKeys / slots; found[part] == "" {
			found[part] = tag
			missing--
		}
	}
	return found
})

// probeSource sets all keys of a probe. KEYS: those. ARGV: their TTL in ms. Some proxies accept
// only such keys.
var probeSource = sync.OnceValue(func() string {
	var b strings.Builder
	for i := range probeKeys {
		fmt.Fprintf(&b, "redis.call('SET', KEYS[%d], '', 'PX', ARGV[1])\n", i+1)
	}
	return b.String() + "return 1\n"
})

// takeSource deletes a key. KEYS: that. Answers 1, or 0 if there was none.
const takeSource = "return redis.call('DEL', KEYS[1])"

// proveSoon makes the probe in the background, unless that is under way, or has failed just now.
// Until one has succeeded, each call has a script of its own, so no call waits for it.
func (s *server) proveSoon() {
	if !s.probe.mu.TryLock() {
		return
	}
	if time.Now().Before(s.probe.next) {
		s.probe.mu.Unlock()
		return
	}
	go func() {
		defer s.probe.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), probeTTL/2)
		defer cancel()
		_ = s.proveNow(ctx)
	}()
}

// proveNow makes the probe, unless its result is known. s.probe.mu must be held.
func (s *server) proveNow(ctx context.Context) error {
	if keyMode(s.mode.Load())&unproven == 0 {
		return nil
	}
	var by client = s.client
	if s.patience != nil {
		by = s.patience.client()
	}
	err := rediserr.Recovered(func() error {
		mode, err := takesTogether(ctx, by)
		if err == nil {
			s.setMode(mode)
		}
		return err
	})
	if p := &s.probe; err != nil {
		p.wait = min(max(2*p.wait, firstRetry), lastRetry)
		p.next = time.Now().Add(p.wait)
	}
	return err
}

// takesTogether asks which keys the server takes in one script.
func takesTogether(ctx context.Context, client client) (keyMode, error) {
	began, random := time.Now(), rand.Text()
	args := []any{eval, probeSource(), probeKeys}
	takes := make([]noRetry, probeKeys)
	for i, tag := range probeTags() {
		key := "onerun:{" + tag + "}:probe:" + random
		args = append(args, key)
		takes[i].Cmder = redis.NewCmd(ctx, eval, takeSource, 1, key)
	}
	set := redis.NewCmd(ctx, append(args, Milliseconds(probeTTL))...)
	switch err := client.Process(ctx, &noRetry{set}); {
	case keysApart(err):
		return oneSlot, nil
	case err != nil:
		return 0, err
	}
	pipe := client.Pipeline()
	for i := range takes {
		_ = pipe.Process(ctx, &takes[i])
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	there := 0
	for _, take := range takes {
		if n, _ := take.Cmder.(*redis.Cmd).Int(); n == 1 {
			there++
		}
	}
	first, _ := takes[0].Cmder.(*redis.Cmd).Int()
	switch {
	case there == probeKeys:
		return 0, nil
	case first == 0, time.Since(began) > probeTTL/2:
		return 0, errProbe
	default:
		return oneCall | firstKey, nil
	}
}

// scriptWarnings says why each claim is a script of its own, if it is. It makes the probe if that
// is not known.
func (s *Store) scriptWarnings(ctx context.Context) []error {
	if s.router != nil {
		return nil // its client routes by itself
	}
	err := bounded(ctx, func() error {
		s.server.probe.mu.Lock()
		defer s.server.probe.mu.Unlock()
		return s.server.proveNow(ctx)
	})
	mode, name := keyMode(s.server.mode.Load()), serverName(s.addr)
	var refused redis.Error
	switch {
	case mode&literalKeys != 0:
		return []error{fmt.Errorf("%s: %s parses scripts, so each claim is a script of its own, in more commands; "+
			"if you can, set its parameter script_check_enable to 0", s.backend, name)}
	case mode&firstKey != 0:
		return []error{fmt.Errorf("%s: %s is a proxy that sends a script to the server of its first key; "+
			"so each claim is a script of its own, as with WithoutBatching", s.backend, name)}
	case mode&unproven != 0 && errors.As(err, &refused):
		return []error{fmt.Errorf("%s: each claim is a script of its own, because %s has not shown "+
			"to which server it sends a script for several keys: %w", s.backend, name, err)}
	}
	return nil
}
