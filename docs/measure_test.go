package docs_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A measure is how easy a page is to read.
type measure struct {
	lines, columns, prose, sentences, words, longest int

	sentence string // the longest one
}

// mean returns the mean number of words of a sentence.
func (m measure) mean() float64 { return float64(m.words) / float64(max(m.sentences, 1)) }

var (
	// prosePart begins something that is no part of the sentence before it.
	prosePart = regexp.MustCompile(`^(\s*([-*]|\d+\.) |#|\||!\[|\[!\[|\[[\w-]+\]: |<|$)`)
	// proseLink is a link or a picture, of which readers see the text.
	proseLink = regexp.MustCompile(`!?\[([^\[\]]*)\]\([^()]*\)`)
	// proseNone is a heading, a picture, a badge, or where a link leads.
	proseNone = regexp.MustCompile(`^(#|!\[|\[!\[|\[[\w-]+\]: )`)
	// proseLong is code that is too long to be wrapped, such as a query.
	proseLong = regexp.MustCompile("`[^`]{50,}`")
	proseCode = regexp.MustCompile("`[^`]*`")
	proseEnd  = regexp.MustCompile(`[.!?:]["')*_]*(\s|$)`)
)

// measured measures a page. Columns are those outside tables, and prose columns those outside code,
// too. Sentences are those outside tables, code, headings and pictures. A colon ends a sentence, as
// a list or code follows it.
func measured(text string) measure {
	m := measure{lines: strings.Count(text, "\n")}
	var part strings.Builder
	end := func() {
		prose := proseCode.ReplaceAllString(proseLink.ReplaceAllString(part.String(), "$1"), "code")
		part.Reset()
		for _, sentence := range proseEnd.Split(prose, -1) {
			n := len(strings.Fields(sentence))
			if n == 0 {
				continue
			}
			m.sentences++
			m.words += n
			if n > m.longest {
				m.longest, m.sentence = n, strings.Join(strings.Fields(sentence), " ")
			}
		}
	}
	code, comment := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		table := strings.HasPrefix(line, "|")
		if columns := utf8.RuneCountInString(line); !table && columns > m.columns {
			m.columns = columns
		}
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			end()
			code = !code
			continue
		case strings.HasPrefix(line, "<!--"):
			comment = true
		}
		if comment {
			comment = !strings.Contains(line, "-->")
			continue
		}
		if code {
			continue
		}
		if prosePart.MatchString(line) {
			end()
		}
		plain := proseLong.ReplaceAllString(proseLink.ReplaceAllString(line, "$1"), "`")
		if columns := utf8.RuneCountInString(plain); !table && columns > m.prose {
			m.prose = columns
		}
		if !table && !proseNone.MatchString(line) {
			part.WriteString(strings.TrimLeft(line, " -*0123456789.") + " ")
		}
	}
	end()
	return m
}

// The README can be read in one sitting. The measures of all pages are printed with -v.
func TestDocs_measures(t *testing.T) {
	t.Parallel()
	t.Logf("%-38s %6s %8s %6s %12s %8s", "page", "lines", "columns", "prose", "words/sent.", "longest")
	for _, page := range pages(t) {
		m := measured(readPage(t, page))
		t.Logf("%-38s %6d %8d %6d %12.1f %8d", page, m.lines, m.columns, m.prose, m.mean(), m.longest)
		if page == "README.md" {
			require.LessOrEqual(t, m.lines, 200, page)
			require.LessOrEqual(t, m.columns, 120, page)
		}
		// Reports hold what was measured on a day, in the words of that day.
		if strings.HasPrefix(page, "docs/reports/") {
			continue
		}
		if m.longest > 30 {
			t.Errorf("%s has a sentence of %d words: %s", page, m.longest, m.sentence)
		}
		if m.prose > 100 && page != "README.md" {
			t.Errorf("%s has prose of %d columns", page, m.prose)
		}
		if m.mean() > 15 {
			t.Errorf("%s has %.1f words per sentence", page, m.mean())
		}
	}
}

func TestDocs_measuresAreThoseOfAPage(t *testing.T) {
	t.Parallel()
	m := measured("# A heading is none\n\nOne two `three four`. Two [one\ntwo](link.md) three?\n\n" +
		"- one: two\n- a b c d e f g\n\n| a table | is none |\n\n```go\ncode is none either, of any length, in any number of columns\n```\n")
	require.Equal(t, measure{lines: 13, columns: 60, prose: 30, sentences: 5, words: 16, longest: 7, sentence: "a b c d e f g"}, m)
}
