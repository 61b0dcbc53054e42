//go:build !trace

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage/stagetest"
)

// The tests of -trace need the tag, as make test has it.
func TestTrace_saysHowToBuildAProgramThatCan(t *testing.T) {
	t.Parallel()
	code, printed := stagetest.Run(t, "-trace")
	require.Equal(t, 2, code)
	require.Contains(t, printed, errNoTelemetry.Error())
}
