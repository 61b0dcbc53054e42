package doctor

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print prints the report for people.
func (r *Report) Print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, s := range r.Servers {
		fmt.Fprintf(w, "%s\n", s.Addr)
		for _, c := range s.Checks {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", c.State, c.Name, c.Text)
		}
		fmt.Fprintln(w)
	}
	for _, b := range r.Backends {
		state := "promises here"
		if !b.Works {
			state = "do not use it here"
		}
		fmt.Fprintf(w, "%s: %s\n", b.Name, state)
		for _, p := range b.Promises {
			fmt.Fprintf(w, "  +\t%s\n", p)
		}
		for _, l := range b.Limits {
			fmt.Fprintf(w, "  -\t%s\n", l)
		}
	}
	if len(r.Namespaces) > 0 {
		fmt.Fprintf(w, "\n%s\n", r.namespacesText())
	}
	switch r.Problems {
	case 0:
		fmt.Fprintln(w, "\nno problems")
	case 1:
		fmt.Fprintln(w, "\n1 problem")
	default:
		fmt.Fprintf(w, "\n%d problems\n", r.Problems)
	}
	return w.Flush()
}
