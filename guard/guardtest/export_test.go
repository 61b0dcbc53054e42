package guardtest

import "testing"

// CheckNames returns the names of all checks, whatever stores need for them.
func CheckNames() []string {
	var names []string
	for _, c := range allChecks() {
		names = append(names, c.name)
	}
	return names
}

// Check makes one check of the store, here and now, and reports to t.
func Check(t testing.TB, s Store, name string) {
	for _, c := range allChecks() {
		if c.name == name && (c.needs == nil || c.needs(s)) {
			c.run(newSubject(t, s))
			return
		}
	}
	t.Fatalf("the store has no such check: %s", name)
}
