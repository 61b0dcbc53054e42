package guardgrpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

const defaultReplayed = "idempotency-replayed"

// An Option is a setting of New. New refuses what cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	idempotent.Settings

	key       KeyFunc
	scope     KeyFunc
	methods   []string
	print     fingerprint
	policy    func(*status.Status) bool
	marker    string   // the metadata of a replay
	without   []string // metadata that is not kept
	observers []Observer
}

// WithScope sets the principal that owns a call: a stable name, such as the number of the account,
// which an authenticating interceptor in front has established. Keys of different scopes never
// collide. New needs it, or WithGlobalKeys. Within a scope, keys belong to a method.
//
// Do not take what changes between a call and its retry, such as a token: each retry would be a
// new call. And do not take what several principals share, such as an address: one would get the
// reply of another. An empty scope, or an error of any kind, refuses the call with INTERNAL,
// because only authenticated calls should reach the interceptor. Defaults to none: New returns a
// *guard.SettingError unless WithGlobalKeys is set.
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

// WithMethods sets which methods need a key, by their full names: "/package.Service/Method". Calls
// of other methods are passed on. Defaults to no names: a call of any unary method is guarded if
// it has a key, and passed on if it has none.
func WithMethods(methods ...string) Option {
	return func(s *settings) {
		checkMethods(s.Refuse, "WithMethods", methods)
		s.methods = slices.Clone(methods)
	}
}

// checkMethods refuses what cannot be the full name of a method.
func checkMethods(refuse func(option string, value any, reason string), option string, methods []string) {
	if len(methods) == 0 {
		refuse(option, nil, "must name a method")
	}
	for _, m := range methods {
		service, method, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		if !ok || !strings.HasPrefix(m, "/") || service == "" || method == "" || strings.Contains(method, "/") {
			refuse(option, fmt.Sprintf("%q", m), "is no full name of a method, which has the form /package.Service/Method")
		}
	}
}

// WithOptionalKey passes on calls of the methods of WithMethods that have no key: they run as if
// there were no interceptor, and the store is not asked. A key that is there and cannot be used is
// refused all the same. Defaults to off: methods of WithMethods need a key.
func WithOptionalKey() Option { return func(s *settings) { s.Optional = true } }

// WithGroup makes all methods that name the same group share their keys. Otherwise, each method
// has keys of its own. It is for keys that name a thing of your own, such as a user with one of
// several operations at a time. Defaults to "", no group.
func WithGroup(name string) Option { return func(s *settings) { s.SetGroup(name) } }

// WithMode sets what happens to a call whose key has been seen before. Defaults to Replay.
func WithMode(mode Mode) Option {
	return func(s *settings) { s.SetMode(idempotent.Mode(mode)) }
}

// WithWait lets a call wait up to d while another with its key runs, instead of being refused at
// once. After that, the Mode decides, or the call runs if the other one has left nothing. The
// client's own deadline also ends the waiting. Defaults to 0, no wait.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.Wait, "WithWait", d) }
}

// WithMaxWaiters bounds how many calls wait at a time, behind one interceptor in one process: in
// all, and for one key. More calls are refused at once, with ABORTED. WithMaxScopeWaiters bounds
// those of one scope. Defaults to 1024 and 256.
func WithMaxWaiters(all, perKey int) Option {
	return func(s *settings) { s.SetMaxWaiters(all, perKey) }
}

// WithMaxScopeWaiters bounds how many calls of one scope (WithScope) wait at a time, behind one
// interceptor in one process, whatever their keys. So one client cannot use up the places of the
// others. More calls of the scope are refused at once, with ABORTED. It is refused with
// WithGlobalKeys, where there are no scopes. Defaults to a quarter of all places of WithMaxWaiters,
// or to the places of one key if these are more: 256.
func WithMaxScopeWaiters(n int) Option {
	return func(s *settings) { s.SetMaxScopeWaiters(n) }
}

// WithMaxScopeRecords bounds how many records one scope (WithScope) has in the store, over all
// processes and all interceptors with the same WithOnce and WithMaxHold. So one client cannot fill
// the store by new keys. A call with a further key is refused with RESOURCE_EXHAUSTED before its
// handler runs, and its RetryInfo says when records have ended. Retries of what was recorded are
// replayed as before. n is from 1 to 100 million.
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

// WithFingerprint sets what of a request must be the same in a retry. A call with the same key
// that differs is refused with INVALID_ARGUMENT. f returns bytes of any length, a hash of which is
// kept with the reply. It must not change the request. An error of f refuses the call with
// INVALID_ARGUMENT. Use it if retries differ in something that does not matter, such as a
// timestamp. f is called concurrently.
//
// With nil there is no fingerprint: the key alone says which calls are the same one. This is for
// keys that your service makes, and not the client.
//
// The deterministic bytes of a message can change with the version of protobuf and of the message.
// So a retry across a deployment can, rarely, be refused. Defaults to the type and the
// deterministic bytes of the message, and to none in Reject and Exclusive mode.
func WithFingerprint(f func(ctx context.Context, info *grpc.UnaryServerInfo, req any) ([]byte, error)) Option {
	return func(s *settings) { s.print, s.OwnPrint, s.NoPrint = f, f != nil, f == nil }
}

// WithMaxAnswer bounds what is recorded, in bytes of the reply or of the error with its details.
// The client gets larger ones whole, and they leave a tombstone. Defaults to 768 KiB, which is also
// the most: a record has at most 1 MiB (guard.MaxRecord), with the metadata.
func WithMaxAnswer(bytes int) Option {
	return func(s *settings) { s.SetMaxAnswer(bytes) }
}

// WithPolicy sets which replies and errors are kept. If p returns false, nothing is kept, and a
// retry runs the handler. s is never nil, and its code is OK for a reply. A handler can choose for
// one of its own, see SetKeep. p is called concurrently. Defaults to KeepFinal.
func WithPolicy(p func(s *status.Status) bool) Option {
	return func(s *settings) {
		if p == nil {
			s.Refuse("WithPolicy", nil, "must not be nil")
		}
		s.policy = p
	}
}

// WithoutMetadata names metadata of headers and trailers that is never kept and never replayed,
// besides that of the list in the documentation (cookies, authentication and the usual names of
// tokens). The client of the first call gets it, and a retry does not. Use it for all metadata of
// your own that has a secret. Several calls add up. Defaults to none.
func WithoutMetadata(names ...string) Option {
	return func(s *settings) {
		if len(names) == 0 {
			s.Refuse("WithoutMetadata", nil, "must name metadata")
		}
		for _, name := range names {
			name = strings.ToLower(name)
			if !validName(name) {
				s.Refuse("WithoutMetadata", fmt.Sprintf("%q", name), "is no name of metadata")
			}
			s.without = append(s.without, name)
		}
	}
}

// WithRerun leaves nothing, instead of a tombstone, after a reply that cannot be replayed (too
// large, or no protobuf message): a retry runs the handler again. Defaults to off: it does not run
// again.
func WithRerun() Option { return func(s *settings) { s.Rerun = true } }

// WithReplayedHeader names the header metadata that marks a replay, with the value "true".
// Defaults to "idempotency-replayed".
func WithReplayedHeader(name string) Option {
	return func(s *settings) {
		name := strings.ToLower(name)
		if !validName(name) || strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") {
			s.Refuse("WithReplayedHeader", fmt.Sprintf("%q", name), "is no name of metadata that is text")
		}
		s.marker = name
	}
}

// WithOnce sets how long a key is remembered after its run, at most ten years. After that it is
// new. Publish it to your clients. Defaults to 24 hours.
func WithOnce(d time.Duration) Option {
	return func(s *settings) { s.SetOnce(d) }
}

// WithMaxHold bounds a run: the handler's context ends after d. If the handler then returns the
// error of its context, the client gets UNAVAILABLE. Defaults to 5 minutes.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.MaxHold, "WithMaxHold", d) }
}

// WithRetryAfter bounds the delay in the RetryInfo of a refusal. It is less if the lease of the
// first call ends earlier. Defaults to one second.
func WithRetryAfter(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.RetryAfter, "WithRetryAfter", d) }
}

// WithClientCancel lets the client cancel: the handler's context ends when the client has gone or
// its deadline is over, and then nothing is kept. Defaults to off: the handler goes on to its end,
// so that a retry finds the reply.
func WithClientCancel() Option { return func(s *settings) { s.Cancel = true } }

// WithFailOpen runs the handler without a lease if the store does not answer. The result is
// ResultDegraded. A duplicate may run at the same time then, and afterwards, because nothing is
// kept. A call waits for the store's answer for 250 ms, or for half of what is left until its own
// deadline if that is less. If no answer comes, calls run without a lease at once for four times
// as long, and then one of them asks again. So do not use it for work that must not repeat:
// clients choose their deadlines.
//
// If the store answers after all, the claim of such a call keeps others away until its handler has
// returned, for up to the TTL. A run that has its lease when the store stops answering waits at its
// end until the lease would end. A store that refuses the claim has answered: it is out of memory
// or read-only, or lacks rights, for example. The call is then refused as without the option, and
// so it is if the Guard is closed. Of the nodes of a quorum, one that refuses is enough. Defaults
// to off: the call is refused with UNAVAILABLE.
func WithFailOpen() Option { return func(s *settings) { s.Open = true } }

// WithAnswerAfterRecord gives a client a reply only when the store has its record. Otherwise, a
// client can have a reply that the store has lost: if the store is away at the end of the run for
// longer than the lease lasts, or if the lease was lost, a retry runs the handler again, and can
// get another reply. With it, the client gets UNAVAILABLE with the result "unrecorded" instead,
// and guard.Ran is true for the error of the interceptor.
//
// Metadata that the handler sets is held back, too. What it sends by grpc.SendHeader cannot be. A
// reply or an error that is not kept is sent as it is, when the lease was released. It cannot be
// combined with WithFailOpen or Exclusive mode. Defaults to off.
func WithAnswerAfterRecord() Option { return func(s *settings) { s.AfterRecord = true } }

// WithShadow counts and changes nothing: every call runs as if there were no interceptor, and an
// Observer receives what would have happened to it. First replies are kept as without it. No call
// waits, and none waits for the store for more than a quarter of a second. It is for the first
// days in production. Defaults to off.
func WithShadow() Option { return func(s *settings) { s.Shadow = true } }

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
	return func(s *settings) {
		all := make([]idempotent.EncryptionKey, len(keys))
		for i, k := range keys {
			all[i] = idempotent.EncryptionKey(k)
		}
		s.SetEncryption(all)
	}
}

// WithObserver adds an observer. Observers are called in the order in which they were added,
// concurrently for several calls. Defaults to none.
func WithObserver(o Observer) Option {
	return func(s *settings) {
		s.observers, s.Origins = append(s.observers, o), append(s.Origins, o.Origin)
	}
}

// WithLease sets options of the lease under which the handler runs, such as guard.WithTTL and
// guard.WithHook. guard.WithName sets the kind of work, and guard.WithFair orders calls that wait.
// In Exclusive mode, guard.WithLimit(n) allows up to n calls of a key at a time.
//
// What cannot work is refused, here and in guard.New: guard.WithOnce and guard.WithWait (use
// WithOnce and WithWait), guard.WithOwner and guard.WithOwnerFrom, and, in other modes,
// guard.WithLimit and guard.WithShared. Defaults to the options of the Guard (its TTL is 30 s
// unless set), with the name "grpc" if the Guard has none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.Lease = append(s.Lease, opts...) }
}
