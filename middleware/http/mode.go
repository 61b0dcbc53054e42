package guardhttp

import (
	"net/http"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A Mode sets what happens to a request whose key has been seen before.
type Mode uint8

const (
	// Replay gives the first answer again. It is the default.
	Replay Mode = iota
	// Reject refuses the request with status 409. No answer is kept, only that there was one.
	Reject
	// Exclusive runs the handler again. Nothing is remembered: requests of one key only do not run
	// at the same time.
	Exclusive
)

// KeepFinal is the default of WithPolicy. It keeps 2xx, 3xx and 4xx, except for those that the
// same request may not get the next time. These are 401, 403, 407, 408, 421, 423, 425, 429, and
// 499, which some servers use if the client has gone. It does not keep a refusal of another
// guardhttp behind the handler, such as that of the service behind a gateway, if the refusal has a
// Retry-After header.
func KeepFinal(status int, header http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, 499:
		return false
	}
	if header.Get(refusedHeader) != "" && header.Get("Retry-After") != "" {
		return false
	}
	return status >= 200 && status < 500
}

// A Keep is what is kept of a run.
type Keep uint8

const (
	// KeepNothing leaves the key free: a retry runs the handler.
	KeepNothing Keep = iota
	// KeepAnswer leaves the answer: a retry gets it again.
	KeepAnswer
	// KeepTombstone leaves only that the handler ran: a retry gets status 409.
	KeepTombstone
)

// String returns "nothing", "answer" or "tombstone".
func (k Keep) String() string { return idempotent.Keep(k).String() }
