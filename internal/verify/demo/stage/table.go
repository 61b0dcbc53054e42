package stage

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
)

// A Table holds what was promised against what was found in the database.
type Table struct {
	rows   []string
	broken bool
}

// Exactly adds a figure that must be what was promised. The note says more about it.
func (t *Table) Exactly(what string, promised, found int, note string) {
	t.add(what, fmt.Sprint(promised), fmt.Sprint(found), found == promised, note)
}

// AtLeast adds a figure that must not be lower than was promised.
func (t *Table) AtLeast(what string, promised, found int, note string) {
	t.add(what, fmt.Sprintf("%d or more", promised), fmt.Sprint(found), found >= promised, note)
}

func (t *Table) add(what, promised, found string, ok bool, note string) {
	verdict := "yes"
	if !ok {
		verdict = "NO"
		t.broken = true
	}
	t.rows = append(t.rows, strings.Join([]string{"", what, promised, found, verdict, note}, "\t"))
}

// Kept reports whether everything was found as promised.
func (t *Table) Kept() bool { return !t.broken }

var trailing = regexp.MustCompile(`(?m) +$`)

// String returns the table as aligned text.
func (t *Table) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tin the database\tpromised\tfound\tok\t")
	fmt.Fprintln(w, "\t---------------\t--------\t-----\t--\t")
	for _, row := range t.rows {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush() // a strings.Builder does not fail
	return trailing.ReplaceAllString(text.String(), "")
}
