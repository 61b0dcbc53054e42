package adaptertest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Texts returns texts that differ, but that a careless decoder takes for one another. Some are not
// UTF-8.
func Texts() []string {
	return []string{
		"caf\xe8", "caf\xe9", "caf\xff", "caf\ufffd", "caf\ufffd\ufffd", "caf", "caf\xc3", "caf\xc3\xa9", "cafe\u0301", "cafe", "CAFE",
		"caf\xed\xa0\x80", "caf\xed\xbf\xbf", // surrogates, as some encode them
		"caf\xf4\x90\x80\x80", "caf\xc0\xa9", // beyond Unicode, and too long
		"k", "\u212a", "caf\u00a0e", "caf e", "caf\u200be", "0", "00", "7", "07", "+7", "7.0", "\uff17",
	}
}

// JSONStrings returns what stands between the quotes of JSON strings that differ.
func JSONStrings() []string {
	return append(Texts(),
		`a\ud800`, `a\ud801`, `a\udfff`, `a\uDFFF\uD800`, `a\ud800\ud800`, `a\ud800x`, `a\ud800\n`, `a\ufffd`, `a\ufffd\ufffd`, `a\ud83d\ude00`, `a\ud83d\ude01`,
		`a\\ud800`, `a\\\ud800`, `a\u0000`, `a`, `\\`, `\"`,
	)
}

// Distinct requires that no two texts have one key. A text for which find returns an error is
// refused.
func Distinct(t *testing.T, texts []string, find func(text string) (key string, err error)) {
	t.Helper()
	of := map[string]string{}
	for _, text := range texts {
		key, err := find(text)
		if err != nil {
			continue
		}
		other, taken := of[key]
		require.Falsef(t, taken, "%q and %q have the key %q", text, other, key)
		of[key] = text
	}
	require.NotEmpty(t, of, "all were refused")
}
