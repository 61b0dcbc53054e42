package redistest

import (
	"os"
	"strings"
	"testing"
)

// ACLLines returns the lines "ACL SETUSER …" of a text file, such as docs/acl.md, by the title in
// the line above them ("# single").
func ACLLines(t testing.TB, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, name := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "# "); ok {
			name = title
		}
		if strings.HasPrefix(line, "ACL ") {
			lines[name] = line
		}
	}
	return lines
}
