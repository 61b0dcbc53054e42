package idempotency

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// An Option is a setting of guardhttp.New and of guardgrpc.New. They refuse a setting that cannot
// work with a *guard.SettingError.
type Option func(*Settings)

// HTTP makes every Option a guardhttp.Option. It does nothing.
func (Option) HTTP() {}

// GRPC makes every Option a guardgrpc.Option. It does nothing.
func (Option) GRPC() {}

// WithGlobalKeys shares keys among all callers, so that the adapter's WithScope is not needed. Use
// it if the key itself names the principal, or if there is only one principal. Defaults to off: New
// needs WithScope.
func WithGlobalKeys() Option { return func(s *Settings) { s.Global = true } }

// WithOptionalKey passes on calls that have no key although WithMethods of the adapter asks for
// one. They run as if there were no middleware, and the store is not asked. A key that is there and
// cannot be used is refused all the same. Defaults to off: a key is required, see WithMethods.
func WithOptionalKey() Option { return func(s *Settings) { s.Optional = true } }

// WithGroup makes all routes, or all methods of gRPC, that name the same group share their keys.
// Otherwise, each of them has keys of its own. It is for keys that name a thing of your own, such
// as a user with one of several operations at a time. Defaults to "", no group.
func WithGroup(name string) Option {
	return func(s *Settings) {
		if name == "" {
			s.Refuse("WithGroup", nil, "must not be empty")
		}
		s.Group = name
	}
}

// WithMode sets what happens to a call whose key has been seen before. Defaults to Replay.
func WithMode(mode Mode) Option {
	return func(s *Settings) {
		if mode > Exclusive {
			s.Refuse("WithMode", int(mode), "is no mode")
		}
		s.Mode = mode
	}
}

// WithWait lets a call wait up to d while another with its key runs, instead of being refused at
// once. After that, the Mode decides, or the call runs if the other one has left nothing. The
// client's own deadline also ends the waiting. In HTTP, the body is read before the request waits.
// Defaults to 0, no wait.
func WithWait(d time.Duration) Option {
	return func(s *Settings) { s.NotNegative(&s.Wait, "WithWait", d) }
}

// WithMaxWaiters bounds how many calls wait at a time, behind one middleware in one process: in
// all, and for one key. More calls are refused at once, with 409, ABORTED. WithMaxScopeWaiters
// bounds those of one scope. Defaults to 1024 and 256.
func WithMaxWaiters(all, perKey int) Option {
	return func(s *Settings) {
		if perKey < 1 || all < perKey {
			s.Refuse("WithMaxWaiters", fmt.Sprintf("%d, %d", all, perKey), "must allow one for a key, and in all as many as for a key")
		}
		s.Waiters, s.KeyWaiters = all, perKey
	}
}

// WithMaxScopeWaiters bounds how many calls of one scope wait at a time, behind one middleware in
// one process, whatever their keys. So one client cannot use up the places of the others. More
// calls of the scope are refused at once, with 409, ABORTED. It is refused with WithGlobalKeys,
// where there are no scopes. Defaults to a quarter of all places of WithMaxWaiters, or to the
// places of one key if these are more: 256.
func WithMaxScopeWaiters(n int) Option {
	return func(s *Settings) {
		if n < 1 {
			s.Refuse("WithMaxScopeWaiters", n, "must be positive")
			return
		}
		s.ScopeWaiters = n
	}
}

// WithMaxScopeRecords bounds how many records one scope has in the store, over all processes and
// all middlewares with the same WithOnce and WithMaxHold. So one client cannot fill the store by
// new keys. A call with a further key is refused with 429, RESOURCE_EXHAUSTED before its handler
// runs, and Retry-After or its RetryInfo says when records have ended. Retries of what was recorded
// are replayed as before. n is from 1 to 100 million.
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
	return func(s *Settings) {
		if n < 1 || n > maxScopeRecords {
			s.Refuse("WithMaxScopeRecords", n, fmt.Sprintf("must be from 1 to %d", maxScopeRecords))
			return
		}
		s.ScopeRecords = n
	}
}

// WithMaxAnswer bounds what is recorded, in bytes: of the body in HTTP, and of the reply, or of the
// error with its details, in gRPC. The client gets larger answers whole, and they leave a
// tombstone. Defaults to 768 KiB, which is also the most: a record has at most 1 MiB
// (guard.MaxRecord), with the headers or the metadata.
func WithMaxAnswer(bytes int) Option {
	return func(s *Settings) {
		if bytes < 0 || bytes > maxAnswer {
			s.Refuse("WithMaxAnswer", bytes, fmt.Sprintf("must be from 0 to %d", maxAnswer))
		}
		s.MaxAnswer = bytes
	}
}

// WithRerun leaves nothing, instead of a tombstone, after an answer that cannot be replayed: a
// retry runs the handler again. Such answers are too large, streams, taken over by Hijack, with
// trailers, or no protobuf message. Defaults to off: the handler does not run again.
func WithRerun() Option { return func(s *Settings) { s.Rerun = true } }

// WithOnce sets for how long a key is remembered after its run, at most ten years. After that it
// is new. Publish it to your clients. Defaults to 24 hours.
func WithOnce(d time.Duration) Option {
	return func(s *Settings) {
		if d > maxRetention {
			s.Refuse("WithOnce", d, "must be at most ten years")
			return
		}
		s.Positive(&s.Retention, "WithOnce", d)
	}
}

// WithMaxHold bounds a run: the handler's context ends after d. If a handler then returns without
// having answered, or in gRPC with the error of its context, the client gets 503, UNAVAILABLE. In
// HTTP, what goroutines of the handler write later is refused. A second after d, writes to a client
// that does not read, and reads of a body that it does not send, fail. An answer that has begun
// before d is over is recorded to its end, and kept as any other: its status says how the work
// went. A handler that cannot finish it panics with http.ErrAbortHandler. Defaults to 5 minutes.
func WithMaxHold(d time.Duration) Option {
	return func(s *Settings) { s.Positive(&s.MaxHold, "WithMaxHold", d) }
}

// WithRetryAfter bounds what the Retry-After header or the RetryInfo of a refusal says. In HTTP,
// seconds are rounded up. It says less if the lease of the first call ends earlier. Defaults to one
// second.
func WithRetryAfter(d time.Duration) Option {
	return func(s *Settings) { s.Positive(&s.RetryAfter, "WithRetryAfter", d) }
}

// WithClientCancel lets the client cancel: the handler's context ends when the client has gone or
// its deadline is over, and then nothing is kept. Defaults to off: the handler goes on to its end,
// so that a retry finds the answer.
func WithClientCancel() Option { return func(s *Settings) { s.ClientCancel = true } }

// WithFailOpen runs the handler without a lease if the store does not answer. The result is
// Degraded. A duplicate may run at the same time then, and afterwards, because nothing is kept. A
// call waits for the store's answer for 250 ms, or for half of what is left until its own deadline
// if that is less. If it has waited for 250 ms, the calls of the next second run without a lease at
// once, and then one of them asks again. So do not use it for work that must not repeat: clients
// choose their deadlines.
//
// If the store answers after all, the claim of such a call keeps others away until its handler has
// returned, for up to the TTL. A run that has its lease when the store stops answering waits at its
// end until the lease would end. A store that refuses the claim has answered: it is out of memory
// or read-only, or lacks rights, for example. The call is then refused as without the option, and
// so it is if the Guard is closed. Of the nodes of a quorum, one that refuses is enough. Defaults
// to off: the call is refused with 503, UNAVAILABLE.
func WithFailOpen() Option { return func(s *Settings) { s.FailOpen = true } }

// WithAnswerAfterRecord sends no answer without a record. Otherwise, a client can get an answer
// that the store does not have: if the store is away at the end of the run for longer than the
// lease lasts, or if the lease was lost, a retry runs the handler again, and can get another
// answer. With it, the client gets 503, UNAVAILABLE with the code "unrecorded" instead.
// guard.Ran is true of the error that guardhttp.WithProblems gets, and of that of the interceptor.
//
// An answer that is not to be kept is sent as it is. What was sent before the end of the run cannot
// be held back: streams, hijacked connections, answers beyond WithMaxAnswer, and what the
// handler flushes. In gRPC, metadata is held back, except for what the handler sends by
// grpc.SendHeader. The option cannot be combined with WithFailOpen or Exclusive mode. Defaults to
// off.
func WithAnswerAfterRecord() Option { return func(s *Settings) { s.AfterRecord = true } }

// WithShadow counts and changes nothing: every call runs as if there were no middleware, and an
// observer receives what would have happened to it. First answers are kept as without it. No call
// waits, and none waits for the store for more than a quarter of a second. It is for the first
// days in production. Defaults to off.
func WithShadow() Option { return func(s *Settings) { s.Shadow = true } }

// WithObserver calls f once for each call with its Outcome, for traces, metrics and logs. It is
// called before the middleware returns, even if the handler panicked. ctx is the call's. Observers
// are called in the order in which they were added, and concurrently for several calls. A panic in
// f is contained. The hooks of the Guard receive the same as a guard.Outcome. Defaults to none.
func WithObserver(f func(ctx context.Context, o Outcome)) Option {
	return func(s *Settings) {
		if f == nil {
			s.Refuse("WithObserver", nil, "must not be nil")
			return
		}
		s.Observers = append(s.Observers, f)
	}
}

// An EncryptionKey is a key of WithEncryption.
type EncryptionKey struct {
	// ID names the key in the records that it encrypted: 1 to 64 bytes.
	ID string
	// Secret is an AES key of 16, 24 or 32 random bytes.
	Secret []byte
}

// WithEncryption encrypts what is kept, with AES-GCM. The first key encrypts, and all of them
// decrypt. To rotate, add the new key behind the first in every process, then put it first. Remove
// the old one when the retention is over. A record is bound to its key, and one that is not
// encrypted is not believed. A key of AES should not encrypt more than 2³² records. Defaults to no
// encryption.
func WithEncryption(keys ...EncryptionKey) Option {
	return func(s *Settings) {
		if len(keys) == 0 {
			s.Refuse("WithEncryption", nil, "needs a key")
		}
		s.Encryption = slices.Clone(keys)
	}
}

// WithLease sets options of the lease under which the handler runs, such as guard.WithTTL and
// guard.WithHook. guard.WithName sets the kind of work, and guard.WithFair orders calls that wait.
// In Exclusive mode, guard.WithLimit(n) allows up to n calls of a key at a time.
//
// What cannot work is refused, here and in guard.New: guard.WithOnce and guard.WithWait (use
// WithOnce and WithWait of this package), guard.WithOwner and guard.WithOwnerFrom, and, in other
// modes, guard.WithLimit and guard.WithShared. Defaults to the options of the Guard (its TTL is
// 30 s unless set). If the Guard has no name, it is the pattern of http.ServeMux that has matched
// the request, the full method of gRPC, or "http".
func WithLease(opts ...guard.Option) Option {
	return func(s *Settings) { s.Lease = append(s.Lease, opts...) }
}
