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

// What stands for a key, in an object and in one inside of another.
func TestJSON_takesOneStringOrInteger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		object, key string
		err         error
	}{
		{`{"task":"t1"}`, "t1", nil},
		{` { "other" : [1,{"task":2}] , "task" : "t2" } ` + "\n", "t2", nil},
		{`{"t\u0061sk":"t3"}`, "t3", nil},
		{`{"task":"a\"\\\n\u00e9\ud83d\ude00:{}"}`, "a\"\\\n\u00e9\U0001F600:{}", nil},
		{`{"task":17}`, "17", nil},
		{`{"task":-17}`, "-17", nil},
		{`{"task":0}`, "0", nil},
		{`{"task":123456789012345678901234567890}`, "123456789012345678901234567890", nil},
		{`{"task":"a","other":{"task":"b","task":"c"}}`, "a", nil},

		{`{"task":1.5}`, "", keys.ErrNoText},
		{`{"task":1e3}`, "", keys.ErrNoText},
		{`{"task":1.0}`, "", keys.ErrNoText},
		{`{"task":-0}`, "", keys.ErrNoText},
		{`{"task":01}`, "", keys.ErrNoObject},
		{`{"task":+1}`, "", keys.ErrNoObject},
		{`{"task":true}`, "", keys.ErrNoText},
		{`{"task":{}}`, "", keys.ErrNoText},
		{`{"task":["a"]}`, "", keys.ErrNoText},

		{`{"task":null}`, "", keys.ErrMissing},
		{`{}`, "", keys.ErrMissing},
		{`{"tasks":"a","other":{"task":"b"}}`, "", keys.ErrMissing},

		{`{"task":"a","task":"b"}`, "", keys.ErrTwice},
		{`{"task":"a","task":"a"}`, "", keys.ErrTwice},
		{`{"task":"a","Task":"b"}`, "", keys.ErrTwice},
		{`{"TASK":"a","task":"b"}`, "", keys.ErrTwice},
		// the long s, which encoding/json takes for an s
		{`{"task":"a","ta\u017Fk":"b"}`, "", keys.ErrTwice},
		{`{"task":"a","tas\u212A":"b"}`, "", keys.ErrTwice}, // the Kelvin sign
		{`{"task":"a","t\u0061sk":"b"}`, "", keys.ErrTwice},
		{`{"task":null,"task":"b"}`, "", keys.ErrTwice},
		{`{"task":"a","task":null}`, "", keys.ErrTwice},

		{``, "", keys.ErrNoObject},
		{`null`, "", keys.ErrNoObject},
		{`"task"`, "", keys.ErrNoObject},
		{`[{"task":"a"}]`, "", keys.ErrNoObject},
		{`{"task":"a"`, "", keys.ErrNoObject},
		{`{"task":"a",}`, "", keys.ErrNoObject},
		{`{"task":"a"}}`, "", keys.ErrNoObject},
		{`{"task":"a"}{"task":"b"}`, "", keys.ErrNoObject},
		{`{"task":"a"} garbage`, "", keys.ErrNoObject},
		{`{"task":"a" "b":1}`, "", keys.ErrNoObject},
		{`{"task" "a"}`, "", keys.ErrNoObject},
		{`{task:"a"}`, "", keys.ErrNoObject},
		{`{'task':'a'}`, "", keys.ErrNoObject},
		{"{\"task\":\"a\nb\"}", "", keys.ErrNoObject},
		{`{"task":"\x"}`, "", keys.ErrNoObject},
		{"\ufeff" + `{"task":"a"}`, "", keys.ErrNoObject},
		{`{"other":[}],"task":"a"}`, "", keys.ErrNoObject},
		{`{"task":"a","deep":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`, "", keys.ErrNoObject},
		{strings.Repeat(`{"task":`, 20_000), "", keys.ErrNoObject},
		{strings.Repeat(`[`, 900_000), "", keys.ErrNoObject},
	} {
		for object, path := range map[string][]string{c.object: {"task"}, `{"task":"no","order":` + c.object + `}`: {"order", "task"}} {
			if c.object == "null" && len(path) > 1 {
				continue // a missing order
			}
			key, err := keys.JSON([]byte(object), path)
			require.ErrorIs(t, err, c.err, "%.100q", object)
			require.Equal(t, c.key, key, "%.100q", object)
		}
	}
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
