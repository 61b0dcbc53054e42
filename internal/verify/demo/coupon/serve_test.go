package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage/stagetest"
)

// serve starts the program with -serve, and returns its URL.
func serve(t *testing.T, args ...string) (program *stagetest.Program, url string) {
	t.Helper()
	program = stagetest.Start(t, append(args, "-serve", "127.0.0.1:0")...)
	return program, program.Find(`serves at (http://127\.0\.0\.1:\d+) until Ctrl-C`)
}

// reply is an answer to curl.
type reply struct {
	Status   int
	Replayed string // the header
	Retry    string // the header
	Body     string
}

// problem returns the code of a problem document.
func (r reply) problem(t *testing.T) string {
	t.Helper()
	var document struct{ Code string }
	require.NoError(t, json.Unmarshal([]byte(r.Body), &document), r.Body)
	return document.Code
}

var client = &http.Client{Timeout: 30 * time.Second}

// curl claims as curl does. The key may be empty.
func curl(url, user, key, body string) (reply, error) {
	request, err := http.NewRequest(http.MethodPost, url+"/claim/"+user, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	h := response.Header
	return reply{response.StatusCode, h.Get("Idempotency-Replayed"), h.Get("Retry-After"), string(text)}, err
}

func mustCurl(t *testing.T, url, user, key, body string) reply {
	t.Helper()
	r, err := curl(url, user, key, body)
	require.NoError(t, err)
	return r
}

// twice claims at both URLs at the same time. One of the two is refused, as the other one is under
// way; the reply to that comes through the channel, with Status 0 if the server broke it off.
func twice(t *testing.T, urls [2]string, user, body string) (runs <-chan reply) {
	t.Helper()
	replies := make(chan reply, 2)
	for _, url := range urls {
		go func() {
			r, _ := curl(url, user, "k1", body)
			replies <- r
		}()
	}
	refused := <-replies
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Equal(t, "in_flight", refused.problem(t))
	require.Equal(t, "1", refused.Retry)
	return replies
}

func TestServe_answersAsTheReadmeSays(t *testing.T) {
	stagetest.OnOneBackend(t, answersAsTheReadmeSays)
}

func TestWeekly_serveAnswersAsTheReadmeSaysOnEachBackend(t *testing.T) {
	leftout.IfShort(t)
	stagetest.OnEachBackend(t, answersAsTheReadmeSays)
}

func answersAsTheReadmeSays(t *testing.T, args ...string) {
	_, url := serve(t, args...)

	first := reply{Status: http.StatusOK, Body: "alice has a coupon for size M, 99 are left\n"}
	require.Equal(t, first, mustCurl(t, url, "alice", "k1", `{"size":"M"}`))
	first.Replayed = "true"
	require.Equal(t, first, mustCurl(t, url, "alice", "k1", `{"size":"M"}`))

	runs := twice(t, [2]string{url, url}, "bob", `{"size":"S","think":"3s"}`)
	bob := reply{Status: http.StatusOK, Body: "bob has a coupon for size S, 98 are left\n"}
	require.Equal(t, bob, <-runs)
	bob.Replayed = "true"
	require.Equal(t, bob, mustCurl(t, url, "bob", "k1", `{"size":"S","think":"3s"}`))

	require.Equal(t, first, mustCurl(t, url, "alice", "k1", `{"size":"M"}`), "what was left then, not now")

	other := mustCurl(t, url, "alice", "k1", `{"size":"L"}`)
	require.Equal(t, http.StatusUnprocessableEntity, other.Status)
	require.Equal(t, "mismatch", other.problem(t))

	missing := mustCurl(t, url, "alice", "", `{"size":"M"}`)
	require.Equal(t, http.StatusBadRequest, missing.Status)
	require.Equal(t, "key_missing", missing.problem(t))

	another := reply{Status: http.StatusConflict, Body: errHasOne.Error() + "\n"}
	require.Equal(t, another, mustCurl(t, url, "alice", "k2", `{"size":"M"}`))
}

func TestUI_showsTheKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	program, url := serve(t, "-ui", "127.0.0.1:0")
	go func() { _, _ = curl(url, "alice", "k1", `{"size":"M","think":"10s"}`) }()
	program.AwaitPage("/", ">coupon:spring<", ">held<", "server 1")
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())
}

func TestUI_isForThisHostAlone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:7380", ":7380", "7380"} {
		code, printed := stagetest.Run(t, "-ui", address)
		require.Equal(t, 2, code, address)
		require.Contains(t, printed, "for flag -ui: ")
	}
}

func TestServe_givesAwayWhatThereIs(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	for left := 99; left >= 0; left-- {
		user := fmt.Sprintf("user-%d", left)
		require.Equal(t, reply{Status: http.StatusOK, Body: fmt.Sprintf("%s has a coupon for size M, %d are left\n", user, left)},
			mustCurl(t, url, user, "k1", `{"size":"M"}`))
	}
	late := reply{Status: http.StatusGone, Body: errSoldOut.Error() + "\n"}
	require.Equal(t, late, mustCurl(t, url, "late", "k1", `{"size":"M"}`))
	late.Replayed = "true"
	require.Equal(t, late, mustCurl(t, url, "late", "k1", `{"size":"M"}`))
	require.Equal(t, reply{Status: http.StatusOK, Replayed: "true", Body: "user-99 has a coupon for size M, 99 are left\n"},
		mustCurl(t, url, "user-99", "k1", `{"size":"M"}`), "a user who has claimed gets the same answer again")
}

func TestServe_refusesWhatIsNoOrder(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	for i, body := range []string{
		``, `size=M`, `{"size":"M"`, `{}`, `{"size":"XXL"}`, `{"size":7}`,
		`{"size":"M","think":"11s"}`, `{"size":"M","think":"-1s"}`, `{"size":"M","think":"long"}`, `{"size":"M","think":3}`,
	} {
		require.Equal(t, reply{Status: http.StatusBadRequest, Body: errOrder.Error() + "\n"},
			mustCurl(t, url, "alice", fmt.Sprint("k", i), body), body)
	}
}

func TestServe_hasNoKeysWithoutTheGuard(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "-guard=off")
	require.Equal(t, reply{Status: http.StatusOK, Body: "alice has a coupon for size M, 99 are left\n"},
		mustCurl(t, url, "alice", "", `{"size":"M"}`))
	require.Equal(t, reply{Status: http.StatusConflict, Body: errHasOne.Error() + "\n"},
		mustCurl(t, url, "alice", "", `{"size":"M"}`))
}

func TestServe_refusesAnAddressThatIsNone(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for address, says := range map[string]string{
		"":                      `coupon: invalid value "" for flag -serve: `,
		"8080":                  `coupon: invalid value "8080" for flag -serve: `,
		"127.0.0.1:99999":       "server 1: serve: ",
		taken.Addr().String():   "server 1: serve: ",
		"127.0.0.1:80:80":       `coupon: invalid value "127.0.0.1:80:80" for flag -serve: `,
		"http://127.0.0.1:8080": `coupon: invalid value "http://127.0.0.1:8080" for flag -serve: `,
	} {
		code, printed := stagetest.Run(t, "-serve", address)
		require.Equal(t, 2, code, address)
		require.Contains(t, printed, says)
		require.NotContains(t, printed, "serves at")
	}
}

func TestServe_endsOnInterruptAlsoWhileItThinks(t *testing.T) {
	t.Parallel()
	for _, thinks := range []bool{false, true} {
		t.Run(fmt.Sprintf("thinks %t", thinks), func(t *testing.T) {
			t.Parallel()
			program, url := serve(t)
			var runs <-chan reply
			if thinks {
				runs = twice(t, [2]string{url, url}, "alice", `{"size":"M","think":"10s"}`)
			}
			program.Signal(os.Interrupt)
			require.Equal(t, 130, program.Wait())
			if thinks {
				require.NotEqual(t, http.StatusOK, (<-runs).Status, "it has waited for the end of that")
			}
			_, err := curl(url, "alice", "k2", `{"size":"M"}`)
			require.Error(t, err)
		})
	}
}

// newServers starts two servers over one store and one database in this process, and returns a
// Guard over the store.
func newServers(t *testing.T) (g *guard.Guard, urls [2]string) {
	t.Helper()
	db, locker := newDatabase(t), memory.New()
	for i := range urls {
		s := &server{
			Name: fmt.Sprintf("server %d", i+1), Guarded: true, Namespace: "test",
			db: db, desks: make(chan struct{}, desks),
		}
		var err error
		s.guard, err = s.newGuard(locker)
		require.NoError(t, err)
		t.Cleanup(func() {
			ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			require.NoError(t, s.guard.Close(ending))
		})
		handler, err := s.handler()
		require.NoError(t, err)
		web := httptest.NewServer(handler)
		t.Cleanup(web.Close)
		g, urls[i] = s.guard, web.URL
	}
	return g, urls
}

func TestClaim_isTheSameOnWhicheverServer(t *testing.T) {
	t.Parallel()
	g, urls := newServers(t)
	stock, err := g.Acquire(t.Context(), stockKey) // the first click has to wait
	require.NoError(t, err)
	runs := twice(t, urls, "alice", `{"size":"M"}`)
	require.NoError(t, stock.Release(t.Context()))
	claimed := reply{Status: http.StatusOK, Body: "alice has a coupon for size M, 99 are left\n"}
	require.Equal(t, claimed, <-runs)
	claimed.Replayed = "true"
	for _, url := range urls {
		require.Equal(t, claimed, mustCurl(t, url, "alice", "k1", `{"size":"M"}`))
	}
}

func TestClaim_runsAgainAfterAnAnswerThatWasNotFinal(t *testing.T) {
	t.Parallel()
	g, urls := newServers(t)
	stock, err := g.Acquire(t.Context(), stockKey)
	require.NoError(t, err)
	begin := time.Now()
	busy := mustCurl(t, urls[0], "alice", "k1", `{"size":"M"}`)
	require.Equal(t, http.StatusServiceUnavailable, busy.Status)
	require.Equal(t, "1", busy.Retry)
	require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
	require.NoError(t, stock.Release(t.Context()))
	require.Equal(t, reply{Status: http.StatusOK, Body: "alice has a coupon for size M, 99 are left\n"},
		mustCurl(t, urls[1], "alice", "k1", `{"size":"M"}`))
}
