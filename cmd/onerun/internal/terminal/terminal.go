// Package terminal prints what the command tells people and programs. All of its output passes
// here. Keys, labels and reasons come from a store: they must not move the cursor of a terminal,
// begin a line of their own, or look like another text.
//
//	page := terminal.NewPage(os.Stdout)
//	page.Row("KEY", "BY")
//	page.Row(key, label)
//	err := page.Flush()
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/internal/printable"
)

// Line prints one line. It is printable.Text of the formatted text.
func Line(to io.Writer, format string, args ...any) {
	fmt.Fprintln(to, printable.Text(fmt.Sprintf(format, args...)))
}

// Own prints a text of the program itself, such as its help or a script, as it is.
func Own(to io.Writer, text string) error {
	_, err := io.WriteString(to, text)
	return err
}

// A Page is lines and tables, for people.
type Page struct{ table *tabwriter.Writer }

// NewPage returns a Page. Nothing is printed before Flush.
func NewPage(to io.Writer) *Page { return &Page{tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)} }

// Line adds a line. An empty one ends a table.
func (p *Page) Line(format string, args ...any) { Line(p.table, format, args...) }

// Row adds a row of a table.
func (p *Page) Row(cells ...string) { p.add("", cells) }

// Detail adds a row that is indented.
func (p *Page) Detail(cells ...string) { p.add("  ", cells) }

func (p *Page) add(indent string, cells []string) {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		shown[i] = printable.Text(cell)
	}
	fmt.Fprintln(p.table, indent+strings.TrimRight(strings.Join(shown, "\t"), "\t"))
}

// Flush prints the Page.
func (p *Page) Flush() error { return p.table.Flush() }

// JSON prints a value for programs. A terminal may display it nevertheless, so characters that
// nobody sees, and a pile of marks, are escaped as \uXXXX. A program reads the same strings.
func JSON(to io.Writer, indent string, value any) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetIndent("", indent)
	if err := out.Encode(value); err != nil {
		return err
	}
	_, err := to.Write(escaped(text.Bytes()))
	return err
}

// escaped escapes what encoding/json leaves as it is. Beyond ASCII, there is nothing but strings.
func escaped(text []byte) []byte {
	var b []byte
	marks := 0
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		switch char := string(text[:size]); {
		case r < 0x7f || marks <= printable.MaxMarks && printable.Text(char) == char:
			b = append(b, char...)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return b
}
