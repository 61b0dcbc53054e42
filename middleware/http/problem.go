package guardhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

const (
	// problemType begins the type of a problem. It never changes, so that clients can compare it.
	problemType = "urn:onerun:problem:"
	// defaultDocs is the page that explains the problems of this version.
	defaultDocs = "https://github.com/seed-1795987d/onerun/blob/v0.1.0/middleware/http/PROBLEMS.md"
)

// refusedHeader marks a refusal, with its code, for a guardhttp in front, see KeepFinal.
const refusedHeader = "Idempotency-Refused"

// A Problem is an answer of the middleware's own, a problem document of RFC 9457. It has nothing
// in it that the client has sent, and nothing about the store.
type Problem struct {
	// Type is "urn:onerun:problem:" and Code. It is the same in all versions.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is the Result, for programs.
	Code idempotency.Result `json:"code"`
	// Docs is the page of WithDocs, with Code as its fragment, for the Link header.
	Docs string `json:"-"`
	// RetryAfter is when to try again, for the Retry-After header; 0 if trying again is of no use.
	RetryAfter time.Duration `json:"-"`
	// Err is why, for logs: it may contain what a client must not see.
	Err error `json:"-"`
}

// problems are the answers of the middleware. The titles of the first three are those of the
// draft.
var problems = map[idempotency.Result]Problem{
	idempotency.KeyMissing: {Status: http.StatusBadRequest, Title: "Idempotency-Key is missing",
		Detail: "This operation needs a key that says which requests are the same one. Send one, and the same one in a retry."},
	idempotency.Mismatch: {Status: http.StatusUnprocessableEntity, Title: "Idempotency-Key is already used",
		Detail: "The key was used for a request that was not the same as this one. Send a new key with a new request."},
	idempotency.InFlight: {Status: http.StatusConflict, Title: "A request is outstanding for this Idempotency-Key",
		Detail: "The first request with the key has not ended yet. Try again after a while, with the same key."},
	idempotency.Done: {Status: http.StatusConflict, Title: "The request was processed before",
		Detail: "A request with the key was processed, and is not processed again."},
	idempotency.NotReplayable: {Status: http.StatusConflict, Title: "The request was processed, and its answer cannot be given again",
		Detail: "A request with the key was processed. Its answer was not kept, or cannot be read; the request is not processed again."},
	idempotency.KeyInvalid: {Status: http.StatusBadRequest, Title: "Idempotency-Key is invalid",
		Detail: "The key that says which requests are the same one cannot be used."},
	idempotency.BodyInvalid: {Status: http.StatusBadRequest, Title: "The request cannot be read",
		Detail: "The body of the request broke off, or is not what it should be."},
	idempotency.BodyTooLarge: {Status: http.StatusRequestEntityTooLarge, Title: "The request is too large",
		Detail: "The body of the request is larger than this operation takes."},
	idempotency.Refused: {Status: http.StatusInternalServerError, Title: "The request cannot be told from others",
		Detail: "The server could not find out whose request this is, or which. It was not processed."},
	idempotency.Unavailable: {Status: http.StatusServiceUnavailable, Title: "The server cannot tell whether the request was processed before",
		Detail: "It was not processed now. Try again after a while, with the same key."},
	idempotency.Canceled: {Status: http.StatusServiceUnavailable, Title: "The request ended before it was its turn",
		Detail: "It was not processed. Try again after a while, with the same key."},
	idempotency.TooManyKeys: {Status: http.StatusTooManyRequests, Title: "Too many keys are in use",
		Detail: "The server remembers as many requests of this client as it may. It was not processed. Try again later, with the same key."},
	idempotent.GivenUp: {Status: http.StatusServiceUnavailable, Title: "The request was given up",
		Detail: "It took too long, or the server could not make sure that it is the only one to process it. Try again after a while, with the same key."},
	idempotent.NotRecorded: {Status: http.StatusServiceUnavailable, Title: "The request was processed, and its answer was not recorded",
		Detail: "The server could not make sure that a retry would get the same answer, so it has sent none. Try again after a while, with the same key: " +
			"the retry gets the answer if it was recorded meanwhile, and is processed anew otherwise."},
}

// Refuse implements idempotent.Transport: it answers with the problem of a result.
func (q *exchange) Refuse(result idempotency.Result, retryAfter time.Duration, err error) {
	p := problems[result]
	p.Code, p.Type, p.Docs = result, problemType+string(result), q.m.docs+"#"+string(result)
	p.RetryAfter, p.Err = retryAfter, err
	if key, ok := err.(*idempotency.KeyError); ok { //nolint:errorlint // a wrapped one says more
		p.Detail += " The " + key.From + " " + key.Reason + "."
	}
	q.call.Status = p.Status
	h := q.w.Header()
	h.Set(refusedHeader, string(result))
	if result == idempotency.BodyTooLarge && q.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // what is left of the body is not worth reading
	}
	if p.RetryAfter > 0 {
		// for the run of an outer middleware, whose answer this is
		idempotency.SetKeep(q.r.Context(), idempotency.KeepNothing)
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	q.m.onProblem(q.w, q.r, p)
}

// seconds rounds up, to one at least: Retry-After has no fractions.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// ServeHTTP answers with the problem document. It is what WithProblems replaces.
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	h.Set("Cache-Control", "no-store")
	h.Add("Link", "<"+p.Docs+`>; rel="describedby"; type="text/html"`)
	document, err := json.Marshal(p)
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	document = append(document, '\n')
	h.Del("Content-Length") // net/http sets it; a compressor in front sends another length
	w.WriteHeader(p.Status)
	_, _ = w.Write(document) // the client may have gone
}
