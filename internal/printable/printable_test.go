package printable_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/printable"
)

func TestText_escapesWhatIsNotVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"web-1 pid 4242":                   "web-1 pid 4242",
		"报表:2026-11-26 é 🙂":                "报表:2026-11-26 é 🙂",
		`C:\reports`:                       `C:\\reports`,
		"a\nb\r\tc":                        `a\nb\r\tc`,
		"\x1b[31mred\x1b[0m":               `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\a":                   `\x1b]0;title\a`,
		"\u009b31m":                        `\u009b31m`,
		"caf\xe8":                          `caf\xe8`,
		"caf\x07":                          `caf\a`,
		"\u202egnp.exe":                    `\u202egnp.exe`,
		"pay\u200bpal \u2066x\u2069":       `pay\u200bpal \u2066x\u2069`,
		"\ufeffx\u00a0y\u2028z\x00\x7f":    `\ufeffx\u00a0y\u2028z\x00\x7f`,
		"\U000e0041":                       `\U000e0041`,
		"a\u3164b\u034fc\ufe0f":            `a\u3164b\u034fc\ufe0f`,
		"\ufffd is not an invalid byte":    "\ufffd is not an invalid byte",
		"z\u0301\u0301\u0301\u0301x\u0301": "z\u0301\u0301\u0301\u0301x\u0301",
		"z" + strings.Repeat("\u0301", 6):  "z\u0301\u0301\u0301\u0301" + `\u0301\u0301`,
		"\xff is":                          `\xff is`,
		" a b  c ":                         `\x20a b \x20c\x20`,
		"already \\x1b[31m, escaped by us": `already \\x1b[31m, escaped by us`,
	} {
		require.Equal(t, want, printable.Text(text))
	}
}

// Different texts never look alike, and what is shown has nothing that a terminal acts on.
func FuzzText(f *testing.F) {
	f.Add("a\nb", `a\nb`)
	f.Add("\xff", `\xff`)
	f.Add("\u202e", "\\u202e")
	f.Fuzz(func(t *testing.T, a, b string) {
		shown := printable.Text(a)
		if a != b && shown == printable.Text(b) {
			t.Fatalf("%q and %q are both shown as %q", a, b, shown)
		}
		if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is shown as %q", a, shown)
		}
	})
}
