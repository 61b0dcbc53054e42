// Package arch_test checks the shape of the code: which package may import which, and what no
// package does.
package arch_test

import (
	"fmt"
	"os"
	"testing"
)

const module = "github.com/seed-1795987d/onerun"

// Folders are named from the top of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
