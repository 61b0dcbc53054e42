package keys_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

func TestJSON_refusesWhatStandsForNoCharacter(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{ // "" is refused
		"{\"order\":\"caf\xe8\"}":                 "",
		"{\"order\":\"caf\xed\xa0\x80\"}":         "",
		`{"order":"a\ud800"}`:                     "",
		`{"order":"a\udfff"}`:                     "",
		`{"order":"a\udc00\ud800"}`:               "",
		`{"order":"a\ud800\u0041"}`:               "",
		"{\"ord\xe8r\":1,\"order\":\"a\"}":        "",
		`{"ord\ud800er":1,"order":"a"}`:           "",
		"{\"order\":\"caf\u00e9\"}":               "caf\u00e9",
		`{"order":"caf\u00e9"}`:                   "caf\u00e9",
		`{"order":"a\ud83d\ude00"}`:               "a\U0001F600",
		`{"order":"a\uD83D\uDE00\\ud800"}`:        "a\U0001F600" + `\ud800`,
		`{"order":"a\ufffd"}`:                     "a\ufffd",
		"{\"order\":\"a\ufffd\"}":                 "a\ufffd",
		"{\"other\":\"caf\xe8\",\"order\":\"a\"}": "a",
		`{"other":{"a\ud800":1},"order":7}`:       "7",
	} {
		key, err := keys.JSON([]byte(object), []string{"order"})
		if want == "" {
			require.ErrorIs(t, err, keys.ErrNoUTF8, object)
			continue
		}
		require.NoError(t, err, object)
		require.Equal(t, want, key)
	}
	_, err := keys.JSON([]byte("{\"a\":{\"b\":\"\xff\"}}"), []string{"a", "b"})
	require.ErrorIs(t, err, keys.ErrNoUTF8)
	adaptertest.Distinct(t, adaptertest.JSONStrings(), func(text string) (string, error) {
		return keys.JSON([]byte(`{"order":"`+text+`"}`), []string{"order"})
	})
}

// Two strings have one key only if they spell the same text.
func FuzzJSON(f *testing.F) {
	for _, text := range adaptertest.JSONStrings() {
		f.Add(text, `a\ufffd`)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		of := func(text string) (string, error) {
			return keys.JSON([]byte(`{"order":"`+text+`"}`), []string{"order"})
		}
		one, err := of(a)
		if err != nil {
			return
		}
		two, err := of(b)
		if err == nil && one == two && a != b && !strings.ContainsAny(a+b, `\`) {
			t.Fatalf("%q and %q have the key %q", a, b, one)
		}
		// What is accepted comes back as it is.
		again, err := of(strings.Trim(strconv.Quote(one), `"`))
		if err == nil && again != one {
			t.Fatalf("%q became %q", one, again)
		}
	})
}

func TestHash_distinguishesBytes(t *testing.T) {
	t.Parallel()
	adaptertest.Distinct(t, adaptertest.Texts(), func(text string) (string, error) {
		sum := keys.Hash("kind", text)
		return string(sum[:]), nil
	})
}
