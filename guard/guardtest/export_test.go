package guardtest

import "testing"

// CheckNames returns the names of all checks, whatever abilities they need.
func CheckNames() []string {
	var names []string
	for _, c := range allChecks() {
		names = append(names, c.name)
	}
	return names
}

// Check runs one check of the backend in this goroutine, and reports to t.
func Check(t testing.TB, backend Backend, name string) {
	for _, c := range allChecks() {
		if c.name == name && (c.needs == nil || c.needs(backend)) {
			c.run(newSubject(t, backend))
			return
		}
	}
	t.Fatalf("there is no such check for this backend: %s", name)
}
