package doctor

import (
	"io"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// Print prints the report for people.
func (r *Report) Print(to io.Writer) error {
	w := terminal.NewPage(to)
	for _, s := range r.Servers {
		w.Line("%s", s.Addr)
		for _, c := range s.Checks {
			w.Detail(string(c.State), c.Name, c.Text)
		}
		w.Line("")
	}
	for _, b := range r.Backends {
		state := "promises here"
		if !b.Works {
			state = "do not use it here"
		}
		w.Line("%s: %s", b.Name, state)
		for _, p := range b.Promises {
			w.Detail("+", p)
		}
		for _, l := range b.Limits {
			w.Detail("-", l)
		}
	}
	if len(r.Namespaces) > 0 {
		w.Line("")
		w.Line("%s", r.namespacesText())
	}
	w.Line("")
	switch r.Problems {
	case 0:
		w.Line("no problems")
	case 1:
		w.Line("1 problem")
	default:
		w.Line("%d problems", r.Problems)
	}
	return w.Flush()
}
