package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// site is what a process has behind adapters.
type site struct {
	claims http.Handler
	mails  asynq.Handler
	ticker *ticker
}

// noQueue is a client of asynq that nothing asks: no server delivers these tasks.
var noQueue = guardasynq.WithClient(asynq.NewClient(asynq.RedisClientOpt{}), asynq.NewInspector(asynq.RedisClientOpt{}))

const siteTTL = 200 * time.Millisecond

func newSite(p *process) site {
	idempotent, err := guardhttp.New(p.guard, guardhttp.FromHeader("Idempotency-Key"),
		idempotency.WithGlobalKeys(), idempotency.WithWait(300*time.Millisecond), idempotency.WithLease(guard.WithTTL(siteTTL)))
	if err != nil {
		panic(err)
	}
	once, err := guardasynq.New(p.guard, nil, noQueue,
		guardasynq.WithBusy(guardasynq.Fail), guardasynq.WithOnce(longestWindow, guardasynq.FromPayload()), guardasynq.WithLease(guard.WithTTL(siteTTL)),
		guardasynq.WithLease(guard.WithHook(guard.Hook{Outcome: noteTask})))
	if err != nil {
		panic(err)
	}
	return site{claims: idempotent(http.HandlerFunc(serveClaim)), mails: once(asynq.HandlerFunc(sendMail)), ticker: newTicker(p)}
}

// A duty is a turn of a worker behind an adapter. It travels in the context of the request or the
// task.
type duty struct {
	worker *worker
	key    string // as the Guard knows it
	b      *belief
	ended  time.Time // when its run was successful
	task   guard.Outcome
}

type dutyKey struct{}

func (k *worker) begin(ctx context.Context) (context.Context, *duty) {
	d := &duty{worker: k}
	return context.WithValue(ctx, dutyKey{}, d), d
}

// work is what a handler does. It returns what it has made, or an error.
func work(ctx context.Context) (made string, err error) {
	d, _ := ctx.Value(dutyKey{}).(*duty)
	k := d.worker
	time.Sleep(upTo(k.rng, 100*time.Microsecond)) // not at the very instant at which another ends
	lease, _ := guard.FromContext(ctx)
	if !lease.Valid() {
		return "", errWork
	}
	d.key = lease.Key()
	d.b = k.world.beliefs.begin(ctx, k.name, lease)
	k.world.spans.begin(d.key, k.name, d.b.asked)
	time.Sleep(upTo(k.rng, 40*time.Millisecond))
	if lease.Valid() {
		k.world.resource.write(d.b, lease)
	}
	if chance(k.rng, 0.2) {
		return "", errWork
	}
	d.ended = time.Now()
	made = fmt.Sprintf("%s %d", k.name, lease.Fence())
	k.world.spans.successful(d.key, made)
	return made, nil
}

// over checks the result of a run. kept says that a marker was left for a time. err is the error
// that the adapter received.
func (d *duty) over(kept bool, window time.Duration, err error) {
	if d.b == nil {
		return
	}
	d.worker.world.tally.runs.Add(1)
	d.worker.world.beliefs.reported(d.b, false, err)
	if kept {
		d.worker.world.spans.close(d.key, span{"once", d.worker.name + " had done it", d.ended, d.ended.Add(window)})
	}
}

var requests = []string{"request0", "request1", "request2"}

// request posts one of a few requests, as clients do that try again.
func (k *worker) request() { k.post(requests[k.rng.IntN(len(requests))]) }

// post returns whether the request has been carried out by now.
func (k *worker) post(key string) bool {
	ctx, d := k.begin(context.Background())
	ctx, outcome := idempotency.Track(ctx)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/claims", http.NoBody)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	k.process.site.claims.ServeHTTP(w, r)
	o := outcome()
	k.world.trace.add("%s has posted %s: %d, %s, kept %v", k.name, key, w.Code, o.Result, o.Kept)
	d.over(o.Kept == idempotency.KeepAnswer, 24*time.Hour, o.Err)
	switch o.Result {
	case idempotency.Replayed:
		if w.Code != http.StatusCreated {
			k.world.violate("once", "%s was given the answer of %s again, with status %d", k.name, key, w.Code)
		}
		k.world.spans.checkDone(k.world.claimed(key, ""), w.Body.String(), k.name)
	case idempotency.Ran, idempotency.InFlight, idempotency.Unavailable:
	default:
		k.world.violate("I8", "%s has posted %s: %s, %v", k.name, key, o.Result, o.Err)
	}
	return w.Code == http.StatusCreated
}

// claimed notes by what key the Guard knows a request, or returns it.
func (w *world) claimed(request, key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != "" {
		w.claims[request] = key
	}
	return w.claims[request]
}

func serveClaim(w http.ResponseWriter, r *http.Request) {
	made, err := work(r.Context())
	if d, _ := r.Context().Value(dutyKey{}).(*duty); d.key != "" {
		d.worker.world.claimed(r.Header.Get("Idempotency-Key"), d.key)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError) // which is not kept
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(made))
}

var mails = []string{"mail0", "mail1"}

// task processes one of a few tasks, as asynq does that delivers at least once.
func (k *worker) task() { k.send(mails[k.rng.IntN(len(mails))]) }

// send returns whether the task has been carried out by now.
func (k *worker) send(mail string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	ctx, d := k.begin(ctx)
	err := k.process.site.mails.ProcessTask(ctx, asynq.NewTask("mail", []byte(mail)))
	o := d.task
	k.world.trace.add("%s has processed %s: %s, %v", k.name, mail, o.Result, outcome(nil, o.Err))
	d.over(o.Result == "ran" && o.Err == nil, longestWindow, o.Err)
	switch o.Result {
	case "ran", "done", "busy", "unavailable", "canceled":
	default:
		k.world.violate("I8", "%s has processed %s: %s, %v", k.name, mail, o.Result, o.Err)
	}
	if errors.Is(err, guard.ErrBusy) != (o.Result == "busy") {
		k.world.violate("I8", "%s has processed %s: %s, and asynq gets the error %v", k.name, mail, o.Result, err)
	}
	return err == nil
}

func sendMail(ctx context.Context, _ *asynq.Task) error {
	_, err := work(ctx)
	return err
}

// noteTask is the hook of outcomes.
func noteTask(ctx context.Context, o guard.Outcome) {
	if d, ok := ctx.Value(dutyKey{}).(*duty); ok {
		d.task = o
	}
}

// finishAll repeats all requests and tasks until each is done. It begins after the last fault.
func (k *worker) finishAll() {
	ends := time.Now().Add(k.world.settled())
	for _, one := range []struct {
		keys []string
		do   func(string) bool
	}{{requests, k.post}, {mails, k.send}} {
		for _, key := range one.keys {
			for !one.do(key) {
				time.Sleep(10*time.Millisecond + upTo(k.rng, 50*time.Millisecond))
				if time.Now().After(ends) {
					k.world.violate("I9", "%s does not get %s done after all is well", k.name, key)
					break
				}
			}
		}
	}
}
