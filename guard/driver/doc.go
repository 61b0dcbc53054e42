// Package driver specifies what a backend implements: the Locker with its Claim and Answer, the
// optional interfaces of a Locker, and the errors of a store. Applications do not need it.
//
//	type Locker struct{ ... }
//
//	var _ driver.Locker = (*Locker)(nil)
//
//	func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error)
//	func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error)
//	func (l *Locker) Release(
//		ctx context.Context, c driver.Claim, after driver.After,
//	) (held bool, err error)
//
// A backend is a package that implements Locker; the store is the server behind it. Package guard
// has aliases for Locker and the errors. The suite in guard/guardtest checks every rule that is
// stated here.
package driver
