package keys

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ErrNoValue says that a context has no value, or one that was never set.
var ErrNoValue = errors.New("the context has no value")

// A KindError says that a value of a context is of a type that is no key.
type KindError struct{ Type reflect.Type }

func (e *KindError) Error() string {
	return fmt.Sprintf("the context's value is a %v, which is no string, integer or array of bytes", e.Type)
}

// unset are texts that Go shows of values that were never set, such as netip.Addr{}.
var unset = []string{"<nil>", "%!s(<nil>)", "%!v(<nil>)", "invalid IP", "invalid AddrPort", "invalid Prefix"}

// shortestID is the length from which a text of zeros alone is an ID that was never set: a UUID
// (RFC 9562, section 5.9), ULID, KSUID or ObjectID. All of them are longer. It may have the dashes
// and braces of a UUID.
const shortestID = 20

// maxPointers bounds how many pointers are followed to a value: a type can point to itself.
const maxPointers = 8

// Value returns the value of a context as text: a string, an integer, an array of bytes such as a
// UUID, or a type of these, also behind pointers. The underlying value counts. A String or
// MarshalText method does not: it may mask the value, so that several values have one text. Any
// other type is a *KindError. A zero value, a nil pointer, an ID of zeros and "<nil>" are
// ErrNoValue, because a field that was never set has them.
func Value(ctx context.Context, key any) (string, error) {
	v := reflect.ValueOf(ctx.Value(key))
	for range maxPointers {
		if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
			break
		}
		v = v.Elem()
	}
	var text string
	switch {
	case !v.IsValid():
		return "", ErrNoValue
	case v.Kind() == reflect.String:
		text = v.String()
	case v.CanInt():
		text = strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		text = strconv.FormatUint(v.Uint(), 10)
	case v.Kind() == reflect.Array && v.Type().Elem().Kind() == reflect.Uint8:
		text = bytesText(v)
	default:
		return "", &KindError{v.Type()}
	}
	if v.IsZero() || isUnset(text) {
		return "", ErrNoValue
	}
	return text, nil
}

// isUnset reports whether a text is that of a value that was never set.
func isUnset(text string) bool {
	id := strings.TrimPrefix(strings.ToLower(text), "urn:uuid:")
	return len(id) >= shortestID && strings.Trim(id, "0-{}") == "" || slices.Contains(unset, text)
}

// bytesText returns an array of bytes in hexadecimal digits, with the dashes of a UUID if its
// length is that of one.
func bytesText(v reflect.Value) string {
	all := make([]byte, v.Len())
	for i := range all {
		all[i] = byte(v.Index(i).Uint())
	}
	s := hex.EncodeToString(all)
	if len(all) == 16 {
		s = s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
	}
	return s
}
