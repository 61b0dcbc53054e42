// Package docs_test tries what the README, docs and deploy say: links, code, commands and measures.
package docs_test

import (
	"fmt"
	"os"
	"testing"
)

const module = "github.com/seed-1795987d/onerun"

// Pages are named from the top of the repository, as readers name them.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
