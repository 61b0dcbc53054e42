package guardriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/riverqueue/river/rivertype"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc returns the key of a job: what must not run twice at a time. ctx is that of the job. An
// error fails the attempt, and River retries the job by its policy. With ErrUnguarded, the job runs
// without a lease. An empty key is a *KeyError. A KeyFunc is called concurrently, and must not
// change the job.
type KeyFunc func(ctx context.Context, job *rivertype.JobRow) (string, error)

// ErrUnguarded is what a KeyFunc returns for a job that needs no key: it runs without a lease.
var ErrUnguarded = errors.New("guardriver: the job is not guarded")

// A KeyError is a job that should have a key, and has none. The attempt fails, and River keeps the
// error with the job and retries it, so that a release that finds the key can still run it.
type KeyError struct {
	Kind   string // the job's
	From   string // where the key should be: `JSON field customer of the args`
	Reason string // "is missing"
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("guardriver: job %q: %s %s", e.Kind, e.From, e.Reason)
}

// FromKind returns a KeyFunc with one key for all jobs of a kind: one of them runs at a time.
func FromKind() KeyFunc {
	return func(context.Context, *rivertype.JobRow) (string, error) { return "kind", nil }
}

// FromArgs returns a KeyFunc that takes the args, as the database returns them.
func FromArgs() KeyFunc {
	return func(_ context.Context, job *rivertype.JobRow) (string, error) {
		return "args:" + string(job.EncodedArgs), nil
	}
}

// FromJSON returns a KeyFunc that takes a field of the args, or, with more names, of the objects
// inside of it. The value must be a string or an integer. A name that occurs twice in an object is
// refused, even in other letters (id and ID): decoders differ in which of them they take. So is a
// value or a name that is not UTF-8, or has half of a surrogate pair: several would be one key. It
// panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	return fromObject("FromJSON", "args", func(job *rivertype.JobRow) []byte { return job.EncodedArgs }, field, inside)
}

// FromMetadata returns a KeyFunc that takes a field of the metadata (river.InsertOpts.Metadata), as
// FromJSON does of the args. It panics without a name.
func FromMetadata(field string, inside ...string) KeyFunc {
	return fromObject("FromMetadata", "metadata", func(job *rivertype.JobRow) []byte { return job.Metadata }, field, inside)
}

func fromObject(function, of string, object func(*rivertype.JobRow) []byte, field string, inside []string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardriver: "+function, names...)
	from := "JSON field " + strings.Join(names, ".") + " of the " + of
	return func(_ context.Context, job *rivertype.JobRow) (string, error) {
		key, err := keys.JSON(object(job), names)
		if err != nil {
			return "", &KeyError{Kind: job.Kind, From: from, Reason: err.Error()}
		}
		return found(job, key, from)
	}
}

// FromJobID returns a KeyFunc that takes the ID of the job. If River takes the job for stuck and
// runs it again, the second run does not begin before the first one has ended.
func FromJobID() KeyFunc {
	return func(_ context.Context, job *rivertype.JobRow) (string, error) {
		return "id:" + strconv.FormatInt(job.ID, 10), nil
	}
}

// Join returns a KeyFunc whose key combines the keys of all of its functions. None may be missing.
// It is a hash of the parts and their lengths, so that no two lists of parts share one. It panics
// if a function is nil.
func Join(first KeyFunc, more ...KeyFunc) KeyFunc {
	all := append([]KeyFunc{first}, more...)
	for i, f := range all {
		if f == nil {
			panic(fmt.Sprintf("guardriver: Join: function %d is nil", i+1))
		}
	}
	return func(ctx context.Context, job *rivertype.JobRow) (string, error) {
		return keys.Join(len(all), func(i int) (string, error) {
			part, err := all[i](ctx, job)
			if err != nil {
				return "", err
			}
			return found(job, part, fmt.Sprintf("part %d of the key", i+1))
		})
	}
}

// Optional returns a KeyFunc that does not guard jobs for which the function returns a *KeyError
// (ErrUnguarded). It is for a middleware of all kinds of jobs of which only some carry the field. A
// job whose field is misspelt runs unguarded, too. It panics if the function is nil.
func Optional(key KeyFunc) KeyFunc {
	if key == nil {
		panic("guardriver: Optional: the function must not be nil")
	}
	return func(ctx context.Context, job *rivertype.JobRow) (string, error) {
		k, err := key(ctx, job)
		var missing *KeyError
		if err == nil && k == "" || errors.As(err, &missing) {
			return "", ErrUnguarded
		}
		return k, err
	}
}

// found returns a key that was found at a place of the job.
func found(job *rivertype.JobRow, key, from string) (string, error) {
	if key == "" {
		return "", &KeyError{Kind: job.Kind, From: from, Reason: "is empty"}
	}
	return key, nil
}

// source returns a function that finds the key of a job.
func (f KeyFunc) source(ctx context.Context, job *rivertype.JobRow) func() (string, error) {
	return func() (string, error) {
		key, err := f(ctx, job)
		if err != nil {
			return "", err
		}
		return found(job, key, "the key")
	}
}
