package guard

import "context"

// OwnerHeader is the name of the header in which CarryOwner and JoinOwner carry an owner.
const OwnerHeader = "Onerun-Owner"

// CarryOwner hands the owner of the lease under which ctx runs, the innermost one, to set, so that a service which is
// called can hold the same key while we do:
//
//	guard.CarryOwner(ctx, request.Header.Set)                              // HTTP
//	guard.CarryOwner(ctx, func(name, owner string) { headers[name] = owner }) // an asynq task's headers
//
// The other side has to ask for it with JoinOwner, and both have to use a store that keeps owners (backend/reentrant, or
// backend/redlock on such). Without a lease it does nothing. The owner's name is all that it takes to join: hand it to
// services only that may do what the holder does.
func CarryOwner(ctx context.Context, set func(name, owner string)) {
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		set(OwnerHeader, c.hold.claim.Owner)
	}
}

// JoinOwner is WithOwner with the owner that a caller has carried here, or changes nothing if there is none:
//
//	err := g.Do(ctx, key, f, guard.JoinOwner(request.Header.Get))
//	err := g.Do(ctx, key, f, guard.JoinOwner(func(name string) string { return task.Headers()[name] }))
//
// A key that this owner holds already is then granted, with the holder's fence. Whoever can set the header can enter a key
// whose owner's name he knows, so believe it only from callers that you trust: have the edge of your network take it
// off. An owner that is too long or has control characters is a *SettingError.
func JoinOwner(get func(name string) string) Option {
	return func(s *settings) {
		if owner := get(OwnerHeader); owner != "" {
			s.text(&s.owner, "JoinOwner", owner, maxName, controls)
		}
	}
}

// controls are the control characters of ASCII.
const controls = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"
