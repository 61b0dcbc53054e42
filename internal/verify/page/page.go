// Package page keeps the parts of a page in docs/ that a run writes. A part stands between two
// comments that name it and the part of the proof that writes it:
//
//	<!-- table: written by proof servers -->
//	<!-- end of table -->
package page

import (
	"fmt"
	"os"
	"strings"
)

// A Page is a file in which runs write parts.
type Page struct {
	// Name is the name of the file.
	Name string
	// Target is the part of the proof that writes the parts.
	Target string
}

func (p Page) begin(part string) string {
	return "<!-- " + part + ": written by proof " + p.Target + " -->\n"
}

func (p Page) end(part string) string { return "<!-- end of " + part + " -->\n" }

// Part returns a part.
func (p Page) Part(part string) (string, error) {
	text, err := os.ReadFile(p.Name)
	if err != nil {
		return "", err
	}
	_, rest, begins := strings.Cut(string(text), p.begin(part))
	inside, _, ends := strings.Cut(rest, p.end(part))
	if !begins || !ends {
		return "", fmt.Errorf("page: %s has no part %q of proof %s", p.Name, part, p.Target)
	}
	return inside, nil
}

// SetPart writes a part anew.
func (p Page) SetPart(part, to string) error {
	was, err := p.Part(part)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(p.Name)
	if err != nil {
		return err
	}
	whole := p.begin(part) + was + p.end(part)
	out := strings.Replace(string(text), whole, p.begin(part)+to+p.end(part), 1)
	return os.WriteFile(p.Name, []byte(out), 0o600)
}
