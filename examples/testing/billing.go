// Package billing shows how to test your own code that uses a Guard: a small service in billing.go,
// and its tests in billing_test.go. They need no Redis. The backend of a test answers as the test
// says: the key is busy, the work is done, the lease is lost, the store does not answer.
package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// What a caller can do differs with each of these.
var (
	// ErrRunning means that another process is sending the invoice.
	ErrRunning = errors.New("billing: the invoice is being sent")
	// ErrUnavailable means that nothing was sent, and that the caller can try again.
	ErrUnavailable = errors.New("billing: try again later")
	// ErrUnclear means that the invoice may or may not have been sent.
	ErrUnclear = errors.New("billing: look it up before you try again")
)

// A Mailer sends an invoice. It stops when ctx ends.
type Mailer func(ctx context.Context, invoice string) (receipt string, err error)

// A Service sends each invoice once. It takes its Guard from outside, so that a test can pass one
// with a backend of its own.
type Service struct {
	guard *guard.Guard
	mail  Mailer
}

// New returns a Service. The caller closes the Guard.
func New(g *guard.Guard, mail Mailer) *Service { return &Service{guard: g, mail: mail} }

// Send sends the invoice, unless it was sent in the last 30 days. It returns the receipt in both
// cases.
func (s *Service) Send(ctx context.Context, invoice string) (receipt string, err error) {
	err = s.guard.Do(ctx, "invoice:"+invoice, func(ctx context.Context) error {
		if receipt, err = s.mail(ctx, invoice); err != nil {
			return err
		}
		lease, _ := guard.FromContext(ctx)
		return lease.SetRecord([]byte(receipt))
	}, guard.WithOnce(30*24*time.Hour))

	var done *guard.DoneError
	switch {
	case err == nil:
		return receipt, nil
	case errors.As(err, &done):
		return string(done.Record), nil
	case errors.Is(err, guard.ErrBusy):
		return "", fmt.Errorf("%w: %w", ErrRunning, err)
	case !guard.Ran(err):
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return "", fmt.Errorf("%w: %w", ErrUnclear, err)
	}
}
