package guardhttp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// recordHandler answers with something of everything that a record holds.
func recordHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/things/1")
	w.Header()["Link"] = []string{"<a>", "<b>"}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte("the answer"))
}

// A recordStand is a record in Redis that tests put others in the place of.
type recordStand struct {
	*contentSite
	key, head, record string
	first             httpAnswer
}

// recordMade runs a handler once, and returns the record that it has left.
func recordMade(t *testing.T, opts ...guardhttp.Option) *recordStand {
	t.Helper()
	site := contentRedis(t).site(t, contentSetup{handler: recordHandler, opts: opts})
	s := &recordStand{contentSite: site, first: site.post(t, "k", "body")}
	require.Equal(t, http.StatusCreated, s.first.status)
	s.key, s.head, s.record = site.record(t)
	return s
}

// put replaces the record.
func (s *recordStand) put(t *testing.T, record string) {
	t.Helper()
	require.NoError(t, s.rdb.Set(t.Context(), s.key, s.head+record, redis.KeepTTL).Err())
}

// requireUnreadable asserts that a retry learns only that there was a first request, and that
// observers get the reason. It returns the reason.
func (s *recordStand) requireUnreadable(t *testing.T, record, what string) (reason string) {
	t.Helper()
	s.put(t, record)
	a := s.post(t, "k", "body")
	require.Equal(t, http.StatusConflict, a.status, what)
	requireProblem(t, a, http.StatusConflict, idempotency.NotReplayable)
	o := s.outcome(t)
	require.Equal(t, idempotency.NotReplayable, o.Result, what)
	var unreadable *idempotency.RecordError
	require.ErrorAs(t, o.Err, &unreadable, what)
	require.NotEmpty(t, unreadable.Reason)
	require.NotContains(t, a.body, unreadable.Reason, "what is wrong is not the client's business")
	s.requireRan(t, 1)
	require.Equal(t, s.head+record, s.rdb.Get(t.Context(), s.key).Val(), "it is left as it is")
	return unreadable.Error()
}

// Row 38, in the other modes.
func TestRecord_corruptInOtherModes(t *testing.T) {
	t.Parallel()
	s := recordMade(t, idempotency.WithMode(idempotency.Reject))
	s.requireUnreadable(t, "nonsense", "reject")
	s.put(t, s.record)
	requireProblem(t, s.post(t, "k", "body"), http.StatusConflict, idempotency.Done)

	shadow := s.site(t, contentSetup{handler: recordHandler, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject), patientShadow}})
	s.put(t, "nonsense")
	require.Equal(t, http.StatusCreated, shadow.post(t, "k", "body").status, "it runs whatever there is")
	var unreadable *idempotency.RecordError
	require.ErrorAs(t, shadow.outcome(t).Err, &unreadable)
	require.Equal(t, idempotency.NotReplayable, shadow.outcome(t).Result)
}

// The store sees hashes of the key, the scope and the body, and the answer if it is kept.
func TestRecord_holdsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   []guardhttp.Option
		answer bool
	}{
		"replay":    {nil, true},
		"tombstone": {[]guardhttp.Option{idempotency.WithMaxAnswer(1)}, false},
		"reject":    {[]guardhttp.Option{idempotency.WithMode(idempotency.Reject)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running, finish := make(chan bool), make(chan bool)
			site := contentRedis(t).site(t, contentSetup{opts: c.opts, handler: func(w http.ResponseWriter, _ *http.Request) {
				close(running)
				<-finish
				w.Header().Set("Set-Cookie", "session=PLAIN-COOKIE")
				_, _ = w.Write([]byte("PLAIN-ANSWER"))
			}})
			ended := make(chan error)
			go func() {
				_, err := contentSend(t, site.client, http.MethodPost, site.url+"/PLAIN-PATH?PLAIN-QUERY", "PLAIN-BODY",
					contentHeader("X-Tenant", "PLAIN-SCOPE"), contentHeader("Idempotency-Key", "PLAIN-KEY"), contentHeader("Authorization", "PLAIN-TOKEN"))
				ended <- err
			}()
			<-running
			require.NotContains(t, recordAll(t, site.rdb), "PLAIN")
			close(finish)
			require.NoError(t, <-ended)
			all := recordAll(t, site.rdb)
			require.Equal(t, c.answer, strings.Contains(all, "PLAIN-ANSWER"))
			require.NotContains(t, strings.ReplaceAll(all, "PLAIN-ANSWER", ""), "PLAIN")
		})
	}
}

// recordAll returns everything that is in a Redis.
func recordAll(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	var all strings.Builder
	keys := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if strings.Contains(keys.Val(), ":probe:") { // of the backend, and soon gone
			continue
		}
		value, err := rdb.Get(t.Context(), keys.Val()).Result()
		require.NoError(t, err, "only texts are stored")
		fmt.Fprintln(&all, keys.Val(), value)
	}
	require.NoError(t, keys.Err())
	require.NotEmpty(t, all.String())
	return all.String()
}

// An answer as large as can be asked for is kept and replayed.
func TestLong_recordOfTheLargestAnswer(t *testing.T) {
	redistest.Long(t)
	answer := make([]byte, 768<<10)
	_, _ = rand.Read(answer)
	secret := make([]byte, 32)
	for name, opts := range map[string][]guardhttp.Option{"plain": nil,
		"encrypted": {idempotency.WithEncryption(idempotency.EncryptionKey{ID: strings.Repeat("i", 64), Secret: secret})}} {
		handler := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("h", 60_000))
			_, _ = w.Write(answer)
		}
		t.Run(name+", memory", func(t *testing.T) {
			s := lifeServe(t, lifeGuard(t, memory.New()), handler, opts...)
			requireRan(t, s.post(t, "k", ""), http.StatusOK, string(answer))
			requireReplay(t, s.post(t, "k", ""), http.StatusOK, string(answer))
		})
		t.Run(name+", Redis", func(t *testing.T) {
			// The Guard waits 2 s for the store to take a record. On a machine that takes longer
			// for that, nothing is shown, so there are several tries.
			g, err := guard.New(single.New(redistest.Start(t).Client(t)), guard.WithNamespace("test"), guard.WithTTL(lifeSoon))
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), lifeSoon)
				defer cancel()
				_ = g.Close(ctx) // claims of failed tries may be left
			})
			s := lifeServe(t, g, handler, opts...)
			runs := 0
			for try := range 10 {
				first := s.post(t, strconv.Itoa(try), "")
				if first.status == http.StatusServiceUnavailable {
					continue // the last record is still on its way
				}
				requireRan(t, first, http.StatusOK, string(answer))
				runs++
				outcome := s.log.awaitResult(t, idempotency.Ran, runs)
				if errors.Is(outcome.Err, guard.ErrMarker) {
					continue
				}
				require.NoError(t, outcome.Err)
				var again httpAnswer
				require.Eventually(t, func() bool { // to read it may take too long as well
					again = lifeSend(t.Context(), s.client, s.URL, strconv.Itoa(try), "")
					return again.status != http.StatusServiceUnavailable
				}, 2*lifeSoon, lifePoll)
				requireReplay(t, again, http.StatusOK, string(answer))
				return
			}
			require.Fail(t, "the store has taken no record in ten tries")
		})
	}
}
