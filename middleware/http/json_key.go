package guardhttp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// FromJSON returns a KeyFunc that takes a field of the JSON object in the body, or, with more
// names, of the objects inside of it. The value must be a string or an integer. A name that occurs
// twice in an object is refused, even in other letters (id and ID): decoders differ in which of
// them they take, and encoding/json takes either. So is a value or a name that is not UTF-8, or
// has half of a surrogate pair: several would be one key. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	for _, n := range names {
		mustName("FromJSON", n)
	}
	from := "JSON field " + strings.Join(names, ".")
	return func(r *http.Request) (string, error) {
		all, err := wholeBody(r)
		if err != nil {
			return "", err
		}
		key, err := keys.JSON(all, names)
		switch {
		case errors.Is(err, keys.ErrMissing):
			return "", missing(from)
		case err != nil:
			return "", &idempotency.KeyError{From: from, Reason: err.Error()}
		}
		return found(key, from)
	}
}
