package guardhttp_test

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// tenant is a scope: it returns the caller that an authentication has established.
func tenant(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

// send posts a request and prints what comes back.
func send(h http.Handler, path, key, body string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-Tenant", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Result().Body)
	text := string(answer)
	if w.Header().Get("Content-Type") == "application/problem+json" {
		text = "a problem"
	}
	replayed := ""
	if w.Header().Get("Idempotency-Replayed") != "" {
		replayed = " (replayed)"
	}
	fmt.Printf("%d %s%s\n", w.Code, strings.TrimSpace(text), replayed)
}

func ExampleNew() {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	if err != nil {
		panic(err)
	}
	claims := 0
	mux := http.NewServeMux()
	mux.Handle("POST /claims", idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claims++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "claim %d", claims)
	})))

	send(mux, "/claims", "8e03978e-40d5", `{"coupon":1}`)
	send(mux, "/claims", "8e03978e-40d5", `{"coupon":1}`) // a retry
	send(mux, "/claims", "8e03978e-40d5", `{"coupon":2}`) // another request
	send(mux, "/claims", "", `{"coupon":1}`)
	// Output:
	// 201 claim 1
	// 201 claim 1 (replayed)
	// 422 a problem
	// 400 a problem
}

// A handler of the examples.
func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") }

// wrap wraps a handler, on a store of its own.
func wrap(h http.HandlerFunc, key guardhttp.KeyFunc, opts ...guardhttp.Option) http.Handler {
	g, err := guard.New(memory.New(), guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, key, append(opts, guardhttp.WithScope(tenant))...)
	if err != nil {
		panic(err)
	}
	return idempotent(h)
}

// A setting that cannot work is refused by its name.
func ExampleNew_refused() {
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	_, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithOnce(-time.Hour), idempotency.WithRetryAfter(0),
		idempotency.WithGlobalKeys())
	fmt.Println(err)
	// Output:
	// guard: WithOnce(-1h0m0s): must be positive
	// guard: WithRetryAfter(0s): must be positive
}

// A key of your own, for clients that send none: one claim for each user and coupon.
func ExampleJoin() {
	key := guardhttp.Join(guardhttp.FromPathValue("coupon"), guardhttp.FromJSON("user"))
	mux := http.NewServeMux()
	mux.Handle("POST /coupons/{coupon}/claims", wrap(hello, key, guardhttp.WithFingerprint(nil)))

	send(mux, "/coupons/spring/claims", "", `{"user": 7}`)
	send(mux, "/coupons/spring/claims", "", `{"user": 7, "again": true}`)
	send(mux, "/coupons/spring/claims", "", `{"user": 8}`)
	send(mux, "/coupons/spring/claims", "", `{}`)
	// Output:
	// 200 hello
	// 200 hello (replayed)
	// 200 hello
	// 400 a problem
}

func ExampleFromForm() {
	h := wrap(hello, guardhttp.FromForm("order"))
	for _, form := range []string{"order=7", "order=7", "order=8", "order=7&order=8"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Tenant", "acme")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Idempotency-Replayed"))
	}
	// Output:
	// 200 ""
	// 200 "true"
	// 200 ""
	// 400 ""
}

type user struct{}

// The scope is best what an authentication in front of the middleware has found out.
func ExampleFromContext() {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, "user 7")))
		})
	}
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	idempotent, err := guardhttp.New(g, guardhttp.FromHeader("PayPal-Request-Id"), guardhttp.WithScope(guardhttp.FromContext(user{})))
	if err != nil {
		panic(err)
	}
	h := authenticate(idempotent(http.HandlerFunc(hello)))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.Header.Set("PayPal-Request-Id", "4b1f")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Idempotency-Replayed"))
	}
	// Output:
	// 200 ""
	// 200 "true"
}

// Rejecting keeps no answers: once for each key, and a refusal after that.
func ExampleWithMode_reject() {
	h := wrap(hello, guardhttp.IdempotencyKey, idempotency.WithMode(idempotency.Reject))
	send(h, "/", "k", "")
	send(h, "/", "k", "")
	// Output:
	// 200 hello
	// 409 a problem
}

// Requests of each user run one at a time, whatever they do. Nothing is remembered.
func ExampleWithMode_exclusive() {
	var again http.Handler
	oneAtATime := wrap(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/withdraw" {
			send(again, "/deposit", "", "") // another request of the same user, meanwhile
		}
		hello(w, r)
	}, tenant, idempotency.WithMode(idempotency.Exclusive), idempotency.WithGroup("account"))
	again = oneAtATime

	send(oneAtATime, "/withdraw", "", "")
	send(oneAtATime, "/deposit", "", "")
	// Output:
	// 409 a problem
	// 200 hello
	// 200 hello
}

// Duplicates that come while the first request is under way wait for its answer.
func ExampleWithWait() {
	started := make(chan struct{})
	h := wrap(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		time.Sleep(20 * time.Millisecond)
		hello(w, r)
	}, guardhttp.IdempotencyKey, idempotency.WithWait(5*time.Second))

	var first sync.WaitGroup
	first.Go(func() {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-Tenant", "acme")
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
	<-started
	send(h, "/", "k", "")
	first.Wait()
	// Output: 200 hello (replayed)
}

// One request of a tenant waits at a time. Another one is refused at once, and other tenants still
// have places.
func ExampleWithMaxScopeWaiters() {
	waiting := make(chan struct{})
	end := make(chan struct{})
	h := wrap(func(w http.ResponseWriter, r *http.Request) {
		waiting <- struct{}{}
		<-end
		hello(w, r)
	}, guardhttp.IdempotencyKey, idempotency.WithWait(time.Minute), idempotency.WithMaxScopeWaiters(1),
		idempotency.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waiting <- struct{}{} }})))

	var requests sync.WaitGroup
	for range 2 { // one runs, and one waits
		requests.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("X-Tenant", "acme")
			r.Header.Set("Idempotency-Key", "k")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		<-waiting
	}
	send(h, "/", "k", "")
	close(end)
	requests.Wait()
	// Output: 409 a problem
}

// Requests of a batch have keys, and others of the route are left out.
func ExampleKeyFunc_unguarded() {
	h := wrap(hello, func(r *http.Request) (string, error) {
		if r.URL.Path != "/batch" {
			return "", idempotency.ErrUnguarded
		}
		return guardhttp.IdempotencyKey(r)
	})
	send(h, "/batch", "k", "")
	send(h, "/batch", "k", "")
	send(h, "/single", "", "")
	// Output:
	// 200 hello
	// 200 hello (replayed)
	// 200 hello
}

// A tenant has one record at a time. A request with a further key is refused, and retries of what
// was recorded are not.
func ExampleWithMaxScopeRecords() {
	h := wrap(hello, guardhttp.IdempotencyKey, idempotency.WithMaxScopeRecords(1))
	send(h, "/", "k1", "")
	send(h, "/", "k2", "")
	send(h, "/", "k1", "")
	// Output:
	// 200 hello
	// 429 a problem
	// 200 hello (replayed)
}

// From inside: the key, the lease and its fence, and what is kept of the run.
func ExampleSetKeep() {
	h := wrap(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		lease, _ := guard.FromContext(ctx)
		fmt.Println("runs for", idempotency.Key(ctx), lease.Valid(), guard.Fence(ctx) > 0)
		idempotency.SetKeep(ctx, idempotency.KeepTombstone) // a secret, to be given once
		fmt.Fprintln(w, "the secret")
	}, guardhttp.IdempotencyKey)
	send(h, "/", "k", "")
	send(h, "/", "k", "")
	// Output:
	// runs for k true true
	// 200 the secret
	// 409 a problem
}

// A log in front of the middleware.
func ExampleTrack() {
	h := wrap(hello, guardhttp.IdempotencyKey)
	log := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, outcome := idempotency.Track(r.Context())
		h.ServeHTTP(w, r.WithContext(ctx))
		fmt.Println(r.Method, r.URL.Path, outcome().Result)
	})
	send(log, "/claims", "k", "")
	send(log, "/claims", "k", "")
	// Output:
	// POST /claims ran
	// 200 hello
	// POST /claims replayed
	// 200 hello (replayed)
}

// The first days in production: count what would happen.
func ExampleWithShadow() {
	counts := expvar.NewMap("idempotency")
	h := wrap(hello, guardhttp.IdempotencyKey, idempotency.WithShadow(), idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { counts.Add(string(o.Result), 1) }))
	send(h, "/", "k", "")
	send(h, "/", "k", "")
	send(h, "/", "", "")
	fmt.Println(counts)
	// Output:
	// 200 hello
	// 200 hello
	// 200 hello
	// {"key_missing": 1, "ran": 1, "replayed": 1}
}

// What is kept is encrypted. To rotate, the new key is added behind the old one, then goes before
// it.
func ExampleWithEncryption() {
	key := func(id string, letter string) idempotency.EncryptionKey {
		// in earnest, from a vault
		return idempotency.EncryptionKey{ID: id, Secret: []byte(strings.Repeat(letter, 32))}
	}
	g, _ := guard.New(memory.New(), guard.WithNamespace("shop"))
	for _, keys := range [][]idempotency.EncryptionKey{
		{key("2025", "a")},
		{key("2026", "b"), key("2025", "a")},
		{key("2026", "b")},
	} {
		idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), idempotency.WithEncryption(keys...))
		if err != nil {
			panic(err)
		}
		send(idempotent(http.HandlerFunc(hello)), "/", "k", "")
	}
	// Output:
	// 200 hello
	// 200 hello (replayed)
	// 409 a problem
}

// Refusals in a form of your own.
func ExampleWithProblems() {
	h := wrap(hello, guardhttp.IdempotencyKey, guardhttp.WithProblems(func(w http.ResponseWriter, _ *http.Request, p guardhttp.Problem) {
		http.Error(w, string(p.Code), p.Status)
	}))
	send(h, "/", "", "")
	// Output: 400 key_missing
}

// What has to be the same in a retry: here the order, and not when it was sent.
func ExampleWithFingerprint() {
	order := func(_ *http.Request, body []byte) ([]byte, error) {
		var sent struct{ Order string }
		err := json.Unmarshal(body, &sent)
		return []byte(sent.Order), err
	}
	h := wrap(hello, guardhttp.IdempotencyKey, guardhttp.WithFingerprint(order))
	send(h, "/", "k", `{"order": "tea", "sent": 1}`)
	send(h, "/", "k", `{"order": "tea", "sent": 2}`)
	send(h, "/", "k", `{"order": "coffee", "sent": 3}`)
	send(h, "/", "k2", `tea`)
	// Output:
	// 200 hello
	// 200 hello (replayed)
	// 422 a problem
	// 400 a problem
}

// Uploads have another boundary in each request.
func ExampleFingerprintMultipart() {
	h := wrap(hello, guardhttp.IdempotencyKey, guardhttp.WithFingerprint(guardhttp.FingerprintMultipart))
	for _, boundary := range []string{"first", "second"} {
		r := httptest.NewRequest(http.MethodPost, "/uploads", strings.NewReader("--"+boundary+
			"\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\n\r\nbytes\r\n--"+boundary+"--\r\n"))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		r.Header.Set("Idempotency-Key", "k1")
		r.Header.Set("X-Tenant", "acme")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Idempotency-Replayed") == "true")
	}
	// Output:
	// 200 false
	// 200 true
}

// A search is of no use to a client that has gone. A retry searches again.
func ExampleWithClientCancel() {
	ctx, leave := context.WithCancel(context.Background())
	left := false
	h := wrap(func(w http.ResponseWriter, r *http.Request) {
		if !left {
			left = true
			leave() // the client goes away
			<-r.Context().Done()
			fmt.Println("the search ends:", r.Context().Err())
			return
		}
		hello(w, r)
	}, guardhttp.IdempotencyKey, idempotency.WithClientCancel())

	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/search", nil)
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	send(h, "/search", "k", "") // it comes back
	// Output:
	// the search ends: context canceled
	// 200 hello
}

// The store does not answer, and this endpoint would rather run twice than not at all.
func ExampleWithFailOpen() {
	g, err := guard.New(&guardtest.Scripted{OnAcquire: func(context.Context, int, driver.Claim) (driver.Answer, error) {
		return driver.Answer{}, guardtest.Fail(driver.KindTimeout)
	}}, guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), idempotency.WithFailOpen())
	if err != nil {
		panic(err)
	}
	send(idempotent(http.HandlerFunc(hello)), "/", "k", "")
	_ = g.Close(context.Background()) // releases what the store may have granted
	// Output: 200 hello
}

// The store does not take the record of an answer, so the client does not get the answer either:
// the retry could get another one.
func ExampleWithAnswerAfterRecord() {
	fails := func(_ context.Context, n int, _ driver.Claim, _ driver.After) (bool, error) {
		if n == 1 {
			return false, guardtest.Fail(driver.KindAuth)
		}
		return false, guardtest.ErrUnscripted
	}
	g, err := guard.New(&guardtest.Scripted{Inner: memory.New(), OnRelease: fails}, guard.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant), idempotency.WithAnswerAfterRecord(),
		guardhttp.WithProblems(func(w http.ResponseWriter, _ *http.Request, p guardhttp.Problem) {
			w.WriteHeader(p.Status)
			fmt.Fprintf(w, "%s, the handler ran: %t", p.Code, guard.Ran(p.Err))
		}))
	if err != nil {
		panic(err)
	}
	send(idempotent(http.HandlerFunc(hello)), "/", "k", "")
	_ = g.Close(context.Background())
	// Output: 503 unrecorded, the handler ran: true
}

// Two paths take the same keys, because they change the same thing.
func ExampleWithGroup() {
	h := wrap(hello, guardhttp.IdempotencyKey, idempotency.WithGroup("order"))
	send(h, "/v1/orders", "k", "")
	send(h, "/v2/orders", "k", "")
	// Output:
	// 200 hello
	// 200 hello (replayed)
}

// A one-time password is for the client of the first request. The retry gets the rest of the
// answer.
func ExampleWithoutHeaders() {
	h := wrap(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-One-Time-Password", "271828")
		hello(w, r)
	}, guardhttp.IdempotencyKey, guardhttp.WithoutHeaders("X-One-Time-Password"))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-Tenant", "acme")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %s %q\n", w.Code, strings.TrimSpace(w.Body.String()), w.Header()["X-One-Time-Password"])
	}
	// Output:
	// 200 hello ["271828"]
	// 200 hello []
}

// Answers with a status of 500 or above are not kept, and neither is one that the handler has
// marked.
func ExampleWithPolicy() {
	busy := true
	h := wrap(func(w http.ResponseWriter, _ *http.Request) {
		if busy {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = io.WriteString(w, "hello")
		busy = false
	}, guardhttp.IdempotencyKey, guardhttp.WithPolicy(func(status int, header http.Header) bool {
		return status < 500 && header.Get("Retry-After") == ""
	}))
	send(h, "/", "k", "")
	send(h, "/", "k", "")
	send(h, "/", "k", "")
	// Output:
	// 409 hello
	// 200 hello
	// 200 hello (replayed)
}

// A client gives each payment a key, so that net/http repeats it if the connection is lost.
func ExampleClientKeys() {
	keys, err := guardhttp.ClientKeys(http.DefaultTransport)
	if err != nil {
		panic(err)
	}
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(len(r.Header.Get("Idempotency-Key")), "characters")
	}))
	defer bank.Close()

	client := &http.Client{Transport: keys}
	response, err := client.Post(bank.URL, "text/plain", strings.NewReader("42"))
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode)
	// Output:
	// 36 characters
	// 200
}
