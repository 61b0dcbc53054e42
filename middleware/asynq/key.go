package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc returns the key of a task: what must not run twice at a time. ctx is that of the task,
// with the values of asynq.GetTaskID and its like. An error fails the task. A *KeyError says that
// the task will never have a key, and archives it at once. Any other error is retried, as errors
// of the handler are. With ErrUnguarded, the task runs without a lease. An empty key is a
// *KeyError. A KeyFunc is called concurrently.
type KeyFunc func(ctx context.Context, task *asynq.Task) (string, error)

// ErrUnguarded is what a KeyFunc returns for a task that needs no key: it runs without a lease.
var ErrUnguarded = errors.New("guardasynq: the task is not guarded")

// A KeyError is a task that should have a key, and has none. It is asynq.SkipRetry to errors.Is:
// asynq archives the task, which can be run again from there, and calls the ErrorHandler.
type KeyError struct {
	Type   string // the task's
	From   string // where the key should be: `JSON field customer of the payload`
	Reason string // "is missing"
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("guardasynq: task %q: %s %s", e.Type, e.From, e.Reason)
}

// Is reports whether target is asynq.SkipRetry.
func (e *KeyError) Is(target error) bool { return target == asynq.SkipRetry }

// FromType returns a KeyFunc with one key for all tasks of a type: one of them runs at a time.
func FromType() KeyFunc {
	return func(context.Context, *asynq.Task) (string, error) { return "type", nil }
}

// FromPayload returns a KeyFunc that takes the bytes of the payload. Payloads that say the same in
// other bytes, such as JSON with its fields in another order, have different keys. An empty
// payload is a key as any.
func FromPayload() KeyFunc {
	return func(_ context.Context, task *asynq.Task) (string, error) {
		return "payload:" + string(task.Payload()), nil
	}
}

// FromJSON returns a KeyFunc that takes a field of the JSON object in the payload, or, with more
// names, of the objects inside of it. The value must be a string or an integer. A name that occurs
// twice in an object is refused, even in other letters (id and ID): decoders differ in which of
// them they take. So is a value or a name that is not UTF-8, or has half of a surrogate pair:
// several would be one key. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardasynq: FromJSON", names...)
	from := "JSON field " + strings.Join(names, ".") + " of the payload"
	return func(_ context.Context, task *asynq.Task) (string, error) {
		key, err := keys.JSON(task.Payload(), names)
		if err != nil {
			return "", &KeyError{Type: task.Type(), From: from, Reason: err.Error()}
		}
		return found(task, key, from)
	}
}

// FromHeader returns a KeyFunc that takes a header of the task, see asynq.NewTaskWithHeaders. It
// panics without a name.
func FromHeader(name string) KeyFunc {
	keys.MustName("guardasynq: FromHeader", name)
	from := "header " + name
	return func(_ context.Context, task *asynq.Task) (string, error) {
		key, ok := task.Headers()[name]
		if !ok {
			return "", &KeyError{Type: task.Type(), From: from, Reason: "is missing"}
		}
		return found(task, key, from)
	}
}

// FromTaskID returns a KeyFunc that takes the ID of the task: two deliveries of one task do not run
// at a time. It is the ID that TaskID returns.
func FromTaskID() KeyFunc {
	return func(ctx context.Context, task *asynq.Task) (string, error) {
		return found(task, TaskID(ctx, task), "task ID")
	}
}

// Join returns a KeyFunc whose key combines the keys of all of its functions. None may be missing.
// It is a hash of the parts and their lengths, so that no two lists of parts share one. It panics
// if a function is nil.
func Join(first KeyFunc, more ...KeyFunc) KeyFunc {
	all := append([]KeyFunc{first}, more...)
	for i, f := range all {
		if f == nil {
			panic(fmt.Sprintf("guardasynq: Join: function %d is nil", i+1))
		}
	}
	return func(ctx context.Context, task *asynq.Task) (string, error) {
		return keys.Join(len(all), func(i int) (string, error) {
			part, err := all[i](ctx, task)
			if err != nil {
				return "", err
			}
			return found(task, part, fmt.Sprintf("part %d of the key", i+1))
		})
	}
}

// Optional returns a KeyFunc that does not guard tasks for which the function returns a *KeyError
// (ErrUnguarded). It is for a middleware over all types of a mux of which only some carry the
// field. A task whose field is misspelt runs unguarded, too. It panics if the function is nil.
func Optional(key KeyFunc) KeyFunc {
	if key == nil {
		panic("guardasynq: Optional: the function must not be nil")
	}
	return func(ctx context.Context, task *asynq.Task) (string, error) {
		k, err := key(ctx, task)
		var missing *KeyError
		if err == nil && k == "" || errors.As(err, &missing) {
			return "", ErrUnguarded
		}
		return k, err
	}
}

// found returns a key that was found at a place of the task.
func found(task *asynq.Task, key, from string) (string, error) {
	if key == "" {
		return "", &KeyError{Type: task.Type(), From: from, Reason: "is empty"}
	}
	return key, nil
}

// source returns a function that finds the key of a task.
func (f KeyFunc) source(ctx context.Context, task *asynq.Task) func() (string, error) {
	return func() (string, error) {
		key, err := f(ctx, task)
		if err != nil {
			return "", err
		}
		return found(task, key, "the key")
	}
}
