package guard

import "context"

// ownerHeader is the name of the header in which CarryOwner and WithOwnerFrom carry an owner.
const ownerHeader = "Onerun-Owner"

// CarryOwner passes the owner of the lease under which ctx runs, the innermost one, to set, under
// the name of a header, "Onerun-Owner". A service that is called can then hold the same key
// meanwhile:
//
//	guard.CarryOwner(ctx, request.Header.Set)                                 // HTTP
//	guard.CarryOwner(ctx, func(name, owner string) { headers[name] = owner }) // an asynq task
//
// The called service has to ask for it with WithOwnerFrom, and both need a backend that keeps
// owners (backend/reentrant, or backend/redlock over such nodes). Without a lease, CarryOwner does
// nothing. The owner's name is all that it takes to join: pass it only to services that may do
// what the holder does.
func CarryOwner(ctx context.Context, set func(name, owner string)) {
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		set(ownerHeader, c.holder.owner)
	}
}

// WithOwnerFrom is WithOwner with the owner that a caller has sent (CarryOwner). It changes
// nothing if there is none:
//
//	err := g.Do(ctx, key, f, guard.WithOwnerFrom(request.Header.Get))
//	header := func(name string) string { return task.Headers()[name] }
//	err := g.Do(ctx, key, f, guard.WithOwnerFrom(header))
//
// A key that this owner already holds is then granted, with the holder's fence. A client that can
// set the header can enter a key if it knows the owner's name. So accept it only from callers that
// you trust, and remove it at the edge of your network. An owner that is too long or has control
// characters is a *SettingError. Defaults to the owner of WithOwner.
func WithOwnerFrom(get func(name string) string) Option {
	return func(s *settings) {
		s.note("WithOwnerFrom", get != nil)
		if get == nil {
			return
		}
		if owner := get(ownerHeader); owner != "" {
			s.text(&s.owner, "WithOwnerFrom", owner, maxName, controls)
		}
	}
}

// controls are the control characters of ASCII.
const controls = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"
