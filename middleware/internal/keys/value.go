package keys

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// Why a value of a context is no key.
var (
	ErrNoValue = errors.New("the context has no value")
	ErrNoKind  = errors.New("it is no string, integer or UUID")
)

// Value returns the value of a context as text: a string, an integer, a UUID ([16]byte), a type of
// these, or a fmt.Stringer. The number 0 and the UUID of zeros count as missing (ErrNoValue),
// because a field that was never set has them.
func Value(ctx context.Context, key any) (string, error) {
	value := ctx.Value(key)
	if value == nil {
		return "", ErrNoValue
	}
	v := reflect.ValueOf(value)
	uuid := v.Kind() == reflect.Array && v.Len() == 16 && v.Type().Elem().Kind() == reflect.Uint8
	if (uuid || v.CanInt() || v.CanUint()) && v.IsZero() {
		return "", ErrNoValue
	}
	if s, ok := value.(fmt.Stringer); ok {
		return s.String(), nil
	}
	switch {
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), nil
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), nil
	case uuid:
		s := fmt.Sprintf("%x", value)
		return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], nil
	}
	return "", ErrNoKind
}
