package keys_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// Types whose methods for display mask the value.
type (
	maskedText   string
	maskedNumber int64
	maskedID     [12]byte
	maskedUser   struct{ ID int }
	maskedPtr    struct{ ID int }
	octet        byte
	itself       *itself
)

func (maskedText) String() string                 { return "***" }
func (maskedText) GoString() string               { return "***" }
func (maskedText) Format(s fmt.State, _ rune)     { _, _ = s.Write([]byte("***")) }
func (maskedText) MarshalText() ([]byte, error)   { return []byte("***"), nil }
func (maskedNumber) String() string               { return "***" }
func (maskedNumber) Error() string                { return "***" }
func (maskedID) String() string                   { return "***" }
func (maskedID) Format(s fmt.State, _ rune)       { _, _ = s.Write([]byte("***")) }
func (maskedUser) String() string                 { return "***" }
func (maskedUser) MarshalText() ([]byte, error)   { return []byte("***"), nil }
func (*maskedPtr) String() string                 { return "***" }
func (*maskedPtr) MarshalBinary() ([]byte, error) { return []byte("***"), nil }

type contextKey struct{}

// valueOf returns the key of a value in a context.
func valueOf(value any) (string, error) {
	return keys.Value(context.WithValue(context.Background(), contextKey{}, value), contextKey{})
}

func to[T any](v T) *T { return &v }

func TestValue_isTheUnderlyingValue(t *testing.T) {
	t.Parallel()
	var boxed any = to(any("boxed"))
	for _, c := range []struct {
		value any
		want  string
	}{
		{"alice", "alice"}, {" ", " "}, {"0", "0"}, {"000", "000"}, {strings.Repeat("0", 19), strings.Repeat("0", 19)}, {strings.Repeat("0", 19) + "1", strings.Repeat("0", 19) + "1"}, {"nil", "nil"}, {"***", "***"}, {"caf\xe8", "caf\xe8"},
		{maskedText("alice"), "alice"}, {to("alice"), "alice"}, {to(maskedText("alice")), "alice"}, {to(to("alice")), "alice"}, {boxed, "boxed"},
		{17, "17"}, {int8(-17), "-17"}, {uint16(17), "17"}, {math.MinInt64, "-9223372036854775808"}, {uint64(math.MaxUint64), "18446744073709551615"},
		{maskedNumber(17), "17"}, {to(maskedNumber(17)), "17"}, {time.Second, "1000000000"}, {time.March, "3"}, {'a', "97"},
		{[16]byte{0x8e, 3: 7, 15: 0xff}, "8e000007-0000-0000-0000-0000000000ff"}, {to([16]byte{15: 1}), "00000000-0000-0000-0000-000000000001"},
		{maskedID{1, 11: 2}, "010000000000000000000002"}, {[2]octet{1, 2}, "0102"}, {[1]byte{1}, "01"}, {[32]byte{31: 1}, fmt.Sprintf("%064x", 1)},
	} {
		got, err := valueOf(c.value)
		require.NoError(t, err, "%T", c.value)
		require.Equal(t, c.want, got, "%T", c.value)
	}
}

func TestValue_refusesWhatWasNeverSet(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, "", maskedText(""), to(""), (*string)(nil), (**string)(nil), to((*string)(nil)), to(any(nil)), (*maskedText)(nil), (*maskedUser)(nil), (*maskedPtr)(nil),
		fmt.Stringer((*maskedPtr)(nil)), (*url.URL)(nil), (*net.IPAddr)(nil), 0, int8(0), uint64(0), uintptr(0), maskedNumber(0), to(0), to(maskedNumber(0)),
		time.Duration(0), [16]byte{}, to([16]byte{}), [12]byte{}, maskedID{}, [32]byte{}, [0]byte{}, "00000000-0000-0000-0000-000000000000",
		to(maskedText("00000000-0000-0000-0000-000000000000")), "00000000000000000000000000000000", "{00000000-0000-0000-0000-000000000000}",
		"URN:UUID:00000000-0000-0000-0000-000000000000", strings.Repeat("0", 20), strings.Repeat("0", 24), strings.Repeat("0", 26), strings.Repeat("0", 64),
		fmt.Sprint(nil), fmt.Sprintf("%s", any(nil)), net.IP(nil).String(), netip.Addr{}.String(), netip.AddrPort{}.String(), netip.Prefix{}.String(),
		(*url.Userinfo)(nil),
	} {
		got, err := valueOf(value)
		require.ErrorIs(t, err, keys.ErrNoValue, "%T", value)
		require.Empty(t, got)
	}
	_, err := keys.Value(context.Background(), contextKey{})
	require.ErrorIs(t, err, keys.ErrNoValue)
}

// Their texts are made for display, or several values have one.
func TestValue_refusesOtherTypesByName(t *testing.T) {
	t.Parallel()
	loop := itself(nil)
	loop = &loop
	for _, c := range []struct {
		value any
		named string
	}{
		{netip.Addr{}, "netip.Addr"}, {netip.MustParseAddr("192.0.2.1"), "netip.Addr"}, {net.IP(nil), "net.IP"}, {net.ParseIP("192.0.2.1"), "net.IP"},
		{[]byte("alice"), "[]uint8"}, {[]byte(nil), "[]uint8"}, {time.Time{}, "time.Time"}, {time.Now(), "time.Time"}, {url.URL{}, "url.URL"},
		{&url.URL{Host: "a"}, "url.URL"}, {sql.NullString{}, "sql.NullString"}, {sql.NullString{String: "a", Valid: true}, "sql.NullString"},
		{maskedUser{}, "keys_test.maskedUser"}, {maskedUser{7}, "keys_test.maskedUser"}, {&maskedPtr{7}, "keys_test.maskedPtr"}, {struct{ Name string }{"alice"}, "struct"},
		{errors.New("alice"), "errors.errorString"}, {true, "bool"}, {false, "bool"}, {17.5, "float64"}, {math.NaN(), "float64"}, {complex(1, 0), "complex128"},
		{[3]int{1}, "[3]int"}, {[2]string{"a"}, "[2]string"}, {map[string]int{}, "map"}, {func() {}, "func"}, {make(chan int), "chan"}, {loop, "keys_test.itself"},
	} {
		got, err := valueOf(c.value)
		kind := (*keys.KindError)(nil)
		require.ErrorAs(t, err, &kind, "%T", c.value)
		require.ErrorContains(t, err, c.named)
		require.NotContains(t, err.Error(), "alice")
		require.Empty(t, got)
	}
}

// Two values of a type that differ never have one key.
func TestValue_distinguishesValues(t *testing.T) {
	t.Parallel()
	for _, of := range []func(text string) any{
		func(text string) any { return text },
		func(text string) any { return maskedText(text) },
		func(text string) any { return &text },
		func(text string) any { id := maskedID{}; copy(id[:], text); return id },
	} {
		adaptertest.Distinct(t, adaptertest.Texts(), func(text string) (string, error) { return valueOf(of(text)) })
	}
	distinct[string](t)
	distinct[maskedText](t)
	distinct[int64](t)
	distinct[uint64](t)
	distinct[int8](t)
	distinct[maskedNumber](t)
	distinct[[16]byte](t)
	distinct[maskedID](t)
	distinct[[3]octet](t)
	distinct[[1]byte](t)
}

// distinct requires that two random values of a type have one key only if they are equal, and that
// none is refused but the zero value.
func distinct[T comparable](t *testing.T) {
	t.Helper()
	var zero T
	require.NoError(t, quick.Check(func(a, b T) bool {
		one, err1 := valueOf(a)
		two, err2 := valueOf(&b)
		return (err1 == nil) == (a != zero) && (err2 == nil) == (b != zero) && (err1 != nil || err2 != nil || (one == two) == (a == b))
	}, nil))
}
