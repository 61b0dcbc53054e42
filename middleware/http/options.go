package guardhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// The defaults.
const (
	defaultMaxBody  = 1 << 20
	defaultReplayed = "Idempotency-Replayed"
)

// An Option is a setting of New. New refuses a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	idempotent.Settings

	key       KeyFunc
	scope     KeyFunc
	methods   []string
	print     fingerprint
	maxBody   int64
	policy    func(status int, header http.Header) bool
	marker    string   // the header of a replay
	without   []string // headers that are not kept, in canonical form
	docs      string
	onProblem func(http.ResponseWriter, *http.Request, Problem)
	observers []Observer
}

// WithScope sets the principal that owns a request: a stable name, such as the number of the
// account, which an authentication in front of the middleware has established. Keys of different
// scopes never collide. New needs it, or WithGlobalKeys. Within a scope, keys belong to a method,
// a path, and the host in the route's pattern if it has one (see the package documentation, "Whose
// keys").
//
// Do not take what changes between a request and its retry, such as a token: each retry would be a
// new request. And do not take what several principals share, such as an address: one would get
// the answer of another. An empty scope, or an error of any kind, refuses the request with status
// 500, because only authenticated requests should reach the middleware. Defaults to none: New
// returns a *guard.SettingError unless WithGlobalKeys is set.
func WithScope(scope KeyFunc) Option {
	return func(s *settings) {
		if scope == nil {
			s.Refuse("WithScope", nil, "must not be nil")
		}
		s.scope = scope
	}
}

// WithGlobalKeys shares keys among all callers, so that WithScope is not needed. Use it if the key
// itself names the principal, or if there is only one principal. Defaults to off: New needs
// WithScope.
func WithGlobalKeys() Option { return func(s *settings) { s.Global = true } }

// WithOptionalKey passes on requests that have no key: they run as if there were no middleware,
// and the store is not asked. A key that is there and cannot be used is refused all the same.
// Defaults to off: a key is required, see WithMethods.
func WithOptionalKey() Option { return func(s *settings) { s.Optional = true } }

// WithGroup makes all routes that name the same group share their keys. Otherwise, each method and
// path has keys of its own. It is for keys that name a thing of your own, such as a user with one
// of several operations at a time. Defaults to "", no group.
func WithGroup(name string) Option { return func(s *settings) { s.SetGroup(name) } }

// WithMethods sets which methods need a key. Requests of other methods are passed on. New refuses
// HEAD, OPTIONS and TRACE.
//
// Without WithMethods, only POST and PATCH need a key. GET, HEAD, OPTIONS, TRACE and QUERY change
// nothing and are passed on. Requests of other methods, such as PUT and DELETE, are guarded if
// they have a key, and passed on if they have none. Defaults to POST and PATCH, as in the draft.
func WithMethods(methods ...string) Option {
	return func(s *settings) {
		if len(methods) == 0 {
			s.Refuse("WithMethods", nil, "must name a method")
		}
		for _, m := range methods {
			switch {
			case !validName(m) || m != strings.ToUpper(m):
				s.Refuse("WithMethods", m, "is no method: they are written in capital letters")
			case slices.Contains([]string{http.MethodHead, http.MethodOptions, http.MethodTrace}, m):
				s.Refuse("WithMethods", m, "never needs a key")
			}
		}
		s.methods = slices.Clone(methods)
	}
}

// WithMode sets what happens to a request whose key has been seen before. Defaults to Replay.
func WithMode(mode Mode) Option {
	return func(s *settings) { s.SetMode(idempotent.Mode(mode)) }
}

// WithWait lets a request wait up to d while another with its key runs, instead of being refused
// at once. After that, the Mode decides, or the request runs if the other one has left nothing.
// Its body is read before it waits. Defaults to 0, no wait.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.Wait, "WithWait", d) }
}

// WithMaxWaiters bounds how many requests wait at a time, behind one middleware in one process: in
// all, and for one key. More requests are refused at once, with status 409. WithMaxScopeWaiters
// bounds those of one scope. Defaults to 1024 and 256.
func WithMaxWaiters(all, perKey int) Option {
	return func(s *settings) { s.SetMaxWaiters(all, perKey) }
}

// WithMaxScopeWaiters bounds how many requests of one scope (WithScope) wait at a time, behind one
// middleware in one process, whatever their keys. So one client cannot use up the places of the
// others. More requests of the scope are refused at once, with status 409. It is refused with
// WithGlobalKeys, where there are no scopes. Defaults to a quarter of all places of WithMaxWaiters,
// or to the places of one key if these are more: 256.
func WithMaxScopeWaiters(n int) Option {
	return func(s *settings) { s.SetMaxScopeWaiters(n) }
}

// WithMaxScopeRecords bounds how many records one scope (WithScope) has in the store, over all
// processes and all middlewares with the same WithOnce and WithMaxHold. So one client cannot fill
// the store by new keys. A request with a further key is refused with status 429 before its handler
// runs, and Retry-After says when records have ended. Retries of what was recorded are replayed as
// before. n is from 1 to 100 million.
//
// A record counts for up to a quarter longer than WithOnce and WithMaxHold together, and for four
// minutes at least. Each process reserves a hundredth of n at a time, and asks the store once for
// them. If it ends, what it has not used stays counted until then. The counters of a scope take
// about half a kilobyte in the store, and stay there for 400 days after the last use. The times are
// those of the processes' clocks.
//
// It is refused with WithGlobalKeys, where there are no scopes, and in Exclusive mode. Defaults to
// no bound.
func WithMaxScopeRecords(n int) Option {
	return func(s *settings) { s.SetMaxScopeRecords(n) }
}

// WithFingerprint sets what of a request must be the same in a retry. A request with the same key
// that differs is refused with status 422. f returns bytes of any length, a hash of which is kept
// with the answer. It gets the whole body, which it must not change. An error of f refuses the
// request with status 400. Use it if retries differ in something that does not matter, such as the
// boundaries of a multipart form (FingerprintMultipart). f is called concurrently.
//
// With nil there is no fingerprint: the key alone says which requests are the same one. This is
// for keys that your service makes, and not the client. The body is then not read before the
// handler reads it.
//
// If code in front of the middleware has parsed a form and left no body, the fields and files of
// the form count instead of the bytes. The request then differs from a retry whose form was not
// parsed. Defaults to the query and the bytes of the body, and to none in Reject and Exclusive
// mode.
func WithFingerprint(f func(r *http.Request, body []byte) ([]byte, error)) Option {
	return func(s *settings) { s.print, s.OwnPrint, s.NoPrint = f, f != nil, f == nil }
}

// WithMaxBody bounds the bodies of requests, in bytes, if the middleware has to read them: for the
// fingerprint, for a key in them, and before waiting. Larger ones are refused with status 413.
// Defaults to 1 MiB.
func WithMaxBody(bytes int64) Option {
	return func(s *settings) {
		if bytes < 0 || bytes > 1<<40 {
			s.Refuse("WithMaxBody", bytes, "must be from 0 to 1 TiB")
		}
		s.maxBody = bytes
	}
}

// WithMaxAnswer bounds what is recorded of an answer's body, in bytes. The client gets larger ones
// whole, and they leave a tombstone. Defaults to 768 KiB, which is also the most: a record has at
// most 1 MiB (guard.MaxRecord), with the headers.
func WithMaxAnswer(bytes int) Option {
	return func(s *settings) { s.SetMaxAnswer(bytes) }
}

// WithPolicy sets which answers are kept. If p returns false, nothing is kept, and a retry runs
// the handler. header is what the handler has set of it, and must not be changed. A handler can
// choose for one of its own, see SetKeep. p is called concurrently. Defaults to KeepFinal.
func WithPolicy(p func(status int, header http.Header) bool) Option {
	return func(s *settings) {
		if p == nil {
			s.Refuse("WithPolicy", nil, "must not be nil")
		}
		s.policy = p
	}
}

// WithoutHeaders names headers of answers that are never kept and never replayed, besides those of
// the list in the documentation (cookies, authentication and the usual names of tokens). The client
// of the first request gets them, and a retry does not. Use it for each header of your own that has
// a secret. Several calls add up. Defaults to none.
func WithoutHeaders(names ...string) Option {
	return func(s *settings) {
		if len(names) == 0 {
			s.Refuse("WithoutHeaders", nil, "must name a header")
		}
		for _, name := range names {
			if !validName(name) {
				s.Refuse("WithoutHeaders", fmt.Sprintf("%q", name), "is no name of a header")
			}
			s.without = append(s.without, http.CanonicalHeaderKey(name))
		}
	}
}

// WithRerun leaves nothing, instead of a tombstone, after an answer that cannot be replayed (too
// large, a stream, taken over by Hijack, with trailers): a retry runs the handler again. Defaults
// to off: it does not run again.
func WithRerun() Option { return func(s *settings) { s.Rerun = true } }

// WithReplayedHeader names the header that marks a replay, with the value "true". Defaults to
// "Idempotency-Replayed".
func WithReplayedHeader(name string) Option {
	return func(s *settings) {
		if !validName(name) {
			s.Refuse("WithReplayedHeader", fmt.Sprintf("%q", name), "is no name of a header")
		}
		s.marker = http.CanonicalHeaderKey(name)
	}
}

// WithOnce sets for how long a key is remembered after its run, at most ten years. After that it
// is new. Publish it to your clients. Defaults to 24 hours.
func WithOnce(d time.Duration) Option {
	return func(s *settings) { s.SetOnce(d) }
}

// WithMaxHold bounds a run: the handler's context ends after d. If the handler returns then
// without having answered, the client gets status 503, and what goroutines of the handler write
// later is refused. A second after d, writes to a client that does not read, and reads of a body
// that it does not send, fail. Defaults to 5 minutes.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.MaxHold, "WithMaxHold", d) }
}

// WithRetryAfter bounds what the Retry-After header of a refusal says; seconds are rounded up. It
// says less if the lease of the first request ends earlier. Defaults to one second.
func WithRetryAfter(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.RetryAfter, "WithRetryAfter", d) }
}

// WithClientCancel lets the client cancel: the handler's context ends when the client has gone,
// and then nothing is kept. Defaults to off: the handler goes on to its end, so that a retry finds
// the answer.
func WithClientCancel() Option { return func(s *settings) { s.Cancel = true } }

// WithFailOpen runs the handler without a lease if the store does not answer. The result is
// ResultDegraded. A duplicate may run at the same time then, and afterwards, because nothing is
// kept. A request waits for the store's answer for 250 ms, or for half of what is left until its
// own deadline if that is less. If no answer comes, requests run without a lease at once for four
// times as long, and then one of them asks again. So do not use it for work that must not repeat.
//
// If the store answers after all, the claim of such a request keeps others away until its handler
// has returned, for up to the TTL. A run that has its lease when the store stops answering waits
// at its end until the lease would end. A store that refuses the claim has answered: it is out of
// memory or read-only, or lacks rights, for example. The request is then refused as without the
// option, and so it is if the Guard is closed. Of the nodes of a quorum, one that refuses is
// enough. Defaults to off: the request is refused with status 503.
func WithFailOpen() Option { return func(s *settings) { s.Open = true } }

// WithAnswerAfterRecord holds an answer back until the store has its record. Otherwise, a client
// can have an answer that the store has lost: if the store is away at the end of the run for
// longer than the lease lasts, or if the lease was lost, a retry runs the handler again, and can
// get another answer. With it, the client gets status 503 with the code "unrecorded" instead. Of
// the error that WithProblems gets, guard.Ran is true.
//
// An answer that is not kept is sent as it is, when the lease was released. What cannot be
// recorded cannot be held back: streams, hijacked connections, answers beyond WithMaxAnswer, and
// what the handler flushes. It cannot be combined with WithFailOpen or Exclusive mode. Defaults to
// off.
func WithAnswerAfterRecord() Option { return func(s *settings) { s.AfterRecord = true } }

// WithShadow counts and changes nothing: every request runs as if there were no middleware, and an
// Observer receives what would have happened to it. First answers are kept as without it. No
// request waits, and none waits for the store for more than a quarter of a second. It is for the
// first days in production. Defaults to off.
func WithShadow() Option { return func(s *settings) { s.Shadow = true } }

// WithDocs sets the page that explains your keys to your clients, an absolute URL without a
// fragment. The Link header of the problems that the middleware answers points to it (rel
// "describedby"), with their code as the fragment. Their type does not change. Defaults to
// PROBLEMS.md of this version.
func WithDocs(url string) Option {
	return func(s *settings) {
		if !validDocs(url) {
			s.Refuse("WithDocs", fmt.Sprintf("%q", url), "must be an absolute URL without a fragment")
		}
		s.docs = url
	}
}

// WithProblems makes f answer if the middleware refuses a request, in a form of your own.
// Problem.ServeHTTP is what it replaces. The Retry-After header is set before. f is called
// concurrently. Defaults to Problem.ServeHTTP.
func WithProblems(f func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithProblems", nil, "must not be nil")
		}
		s.onProblem = f
	}
}

// WithEncryption encrypts what is kept, with AES-GCM. The first key encrypts, and all of them
// decrypt. To rotate, add the new key behind the first in every process, then put it first. Remove
// the old one when the retention is over. A record is bound to its key, and one that is not
// encrypted is not believed. A key of AES should not encrypt more than 2³² records. Defaults to no
// encryption.
func WithEncryption(keys ...EncryptionKey) Option {
	return func(s *settings) {
		all := make([]idempotent.EncryptionKey, len(keys))
		for i, k := range keys {
			all[i] = idempotent.EncryptionKey(k)
		}
		s.SetEncryption(all)
	}
}

// WithObserver adds an observer. Observers are called in the order in which they were added,
// concurrently for several requests. Defaults to none.
func WithObserver(o Observer) Option {
	return func(s *settings) {
		s.observers, s.Origins = append(s.observers, o), append(s.Origins, o.Origin)
	}
}

// WithLease sets options of the lease under which the handler runs, such as guard.WithTTL and
// guard.WithHook. guard.WithName sets the kind of work, and guard.WithFair orders requests that
// wait. In Exclusive mode, guard.WithLimit(n) allows up to n requests of a key at a time.
//
// What cannot work is refused, here and in guard.New: guard.WithOnce and guard.WithWait (use
// WithOnce and WithWait), guard.WithOwner and guard.WithOwnerFrom, and, in other modes,
// guard.WithLimit and guard.WithShared. Defaults to the options of the Guard (its TTL is 30 s
// unless set), with the name "http" if the Guard has none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.Lease = append(s.Lease, opts...) }
}

// An EncryptionKey is a key of WithEncryption.
type EncryptionKey struct {
	// ID names the key in the records that it encrypted: 1 to 64 bytes.
	ID string
	// Secret is an AES key of 16, 24 or 32 random bytes.
	Secret []byte
}
