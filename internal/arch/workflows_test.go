package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tag of an action can be moved to other code, and a token may do what the job does not need.
func TestWorkflows_pinActionsAndReadOnly(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	uses := regexp.MustCompile(`(?m)^ *- uses: (.*)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), "\npermissions:\n  contents: read\n", file)
		actions := uses.FindAllSubmatch(text, -1)
		require.NotEmpty(t, actions, file)
		for _, action := range actions {
			require.Regexp(t, `^[\w./-]+@[0-9a-f]{40} # v[0-9.]+$`, string(action[1]), file)
		}
	}
}

// Each module gets updates.
func TestDependabot_updatesEachModule(t *testing.T) {
	text, err := os.ReadFile(".github/dependabot.yml")
	require.NoError(t, err)
	work, err := os.ReadFile("go.work")
	require.NoError(t, err)
	modules := regexp.MustCompile(`(?m)^\t\.(/?.*)$`).FindAllSubmatch(work, -1)
	require.NotEmpty(t, modules)
	for _, module := range modules {
		if name := string(module[1]); name != "" {
			require.Contains(t, string(text), "      - "+name+"\n")
		}
	}
	require.Contains(t, string(text), "package-ecosystem: gomod\n    directory: /\n")
}
