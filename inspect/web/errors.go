package web

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-1795987d/onerun/guard"
)

var (
	errForbidden = errors.New("you may look, but not act")
	// errLink is a link that this handler has not made.
	errLink = errors.New("the link is too old: search for the key again")
)

// A formError is a form that asks for what cannot be done. It has no key that is not redacted.
type formError struct{ text string }

func (e *formError) Error() string { return e.text }

func badForm(format string, args ...any) error { return &formError{fmt.Sprintf(format, args...)} }

// statusOf returns the status for an error.
func statusOf(err error) int {
	var (
		setting *guard.SettingError
		key     *guard.KeyError
		form    *formError
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errForbidden):
		return http.StatusForbidden
	case errors.As(err, &form), errors.As(err, &setting), errors.As(err, &key), errors.Is(err, errLink):
		return http.StatusBadRequest
	case errors.Is(err, guard.ErrStore):
		return http.StatusBadGateway
	case errors.Is(err, guard.ErrBusy), errors.Is(err, guard.ErrDone):
		return http.StatusConflict
	default:
		return http.StatusInternalServerError
	}
}

// textOf returns what the page says of an error. Errors name keys, and those of a store name what
// is on it. So if keys are redacted, only the errors of this package are shown as they are.
func (h *handler) textOf(err error) string {
	var (
		setting *guard.SettingError
		key     *guard.KeyError
		store   *guard.StoreError
		form    *formError
	)
	switch {
	case h.show == nil, errors.Is(err, errForbidden), errors.Is(err, errLink), errors.As(err, &form):
		return err.Error()
	case errors.As(err, &setting):
		return setting.Setting + " cannot be used like that"
	case errors.As(err, &key):
		return "the key cannot be used: it is empty or too long, or has a character that the store does not take"
	case errors.As(err, &store):
		return fmt.Sprintf("the store could not be asked (%s)", store.Kind)
	case errors.Is(err, guard.ErrBusy):
		return "the key is busy"
	case errors.Is(err, guard.ErrDone):
		return "the work is done"
	default:
		return "something has failed; keys are redacted, so the error is not shown"
	}
}
