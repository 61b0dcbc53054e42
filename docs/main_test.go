// Package docs_test tries what the README, docs and deploy say: links, code, commands and measures.
package docs_test

import (
	"fmt"
	"os"
	"testing"
)

const module = "github.com/seed-1795987d/onerun"

// programs is a folder for what the tests build.
var programs string

// Pages are named from the top of the repository, as readers name them.
func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if err := os.Chdir(".."); err != nil {
		return 1, err
	}
	if programs, err = os.MkdirTemp("", "onerun-docs"); err != nil {
		return 1, err
	}
	defer func() { err = os.RemoveAll(programs) }()
	return m.Run(), nil
}
