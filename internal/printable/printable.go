// Package printable makes text from a store, a client or a user safe to show to people. Such text
// must not move the cursor of a terminal, begin a line of its own, or look like another text.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns the text with everything escaped that is not visible by itself: control characters,
// line breaks, spaces other than ' ', directional and zero-width characters, and bytes that are not
// UTF-8. So is a space at an end of the text or after another space: a table hides the first, and a
// browser the second. So is a mark after four others: a browser draws a pile of marks over the
// lines around it. A backslash is doubled, so two different texts never look alike.
func Text(text string) string {
	if isVisible(text) {
		return text
	}
	var b strings.Builder
	marks := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		marks = marksUpTo(r, marks)
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == ' ' && isHidden(text, i):
			b.WriteString(`\x20`)
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
		case isPrint(r) && marks <= MaxMarks:
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// isVisible reports whether nothing has to be escaped.
func isVisible(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	marks := 0
	for i, r := range text {
		if marks = marksUpTo(r, marks); marks > MaxMarks {
			return false
		}
		if r == '\\' || !isPrint(r) || r == ' ' && isHidden(text, i) {
			return false
		}
	}
	return true
}

// MaxMarks is how many marks a letter has at most: a Hebrew letter with points and cantillation.
const MaxMarks = 4

// marksUpTo returns how many marks in a row end with r, if n marks come before it.
func marksUpTo(r rune, n int) int {
	if unicode.Is(unicode.M, r) {
		return n + 1
	}
	return 0
}

// isHidden reports whether nobody sees the space at i: it is the first or the last character, or
// follows another space.
func isHidden(text string, i int) bool {
	return i == 0 || i == len(text)-1 || text[i-1] == ' '
}

// isPrint is unicode.IsPrint without characters that it takes for letters and marks although they
// are not displayed, such as variation selectors and Hangul fillers.
func isPrint(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
