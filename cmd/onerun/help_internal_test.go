package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// helpOf returns what "--help" prints for a command.
func helpOf(t *testing.T, command string) string {
	t.Helper()
	parser, err := newParser(&commands{})
	require.NoError(t, err)
	var out bytes.Buffer
	parser.Stdout = &out
	parser.Exit = func(int) {}
	_, _ = parser.Parse(append(strings.Fields(command), "--help"))
	return out.String()
}

func TestHelp_usageLines(t *testing.T) {
	for command, want := range map[string]string{
		"":           "onerun [flags] COMMAND",
		"run":        "onerun run [flags] KEY... -- COMMAND [ARG...]",
		"show":       "onerun show [flags] KEY",
		"ls":         "onerun ls [flags] [PREFIX]",
		"break":      "onerun break [flags] KEY [ID]",
		"hold":       "onerun hold [flags] --for=2h KEY",
		"pause":      "onerun pause [flags] JOB...",
		"key":        "onerun key [flags] COMMAND",
		"key http":   "onerun key http [flags] METHOD PATH KEY",
		"migrate":    "onerun migrate [flags]",
		"completion": "onerun completion [flags] SHELL",
	} {
		text := helpOf(t, command)
		require.True(t, strings.HasPrefix(text, "Usage: "+want+"\n"), text)
		require.NotRegexp(t, `<[a-z]+>`, text, "an argument in the manner of kong")
		if command != "" && command != "key" {
			require.Contains(t, helpOf(t, ""), "\n  "+strings.TrimPrefix(want, "onerun ")+"\n")
		}
	}
	require.Contains(t, helpOf(t, "break"), "\n  KEY       The key.\n  [ID]      The ID of the holder")
}

// The help of each command has two examples or more, and the parser takes them.
func TestHelp_examples(t *testing.T) {
	parser, err := newParser(&commands{})
	require.NoError(t, err)
	var paths []string
	for _, node := range parser.Model.Leaves(true) {
		paths = append(paths, node.Path())
	}
	require.ElementsMatch(t, paths, slices.Collect(maps.Keys(examples)))
	for path, calls := range examples {
		require.GreaterOrEqual(t, len(calls), 2, path)
		for _, call := range calls {
			require.Contains(t, helpOf(t, path), "\n    "+call+"\n")
			_, args, ok := strings.Cut(call, "onerun "+path)
			require.True(t, ok || strings.Contains(call, "$(onerun "+path), call)
			args, _, _ = strings.Cut(args, " -- ")
			args, _, _ = strings.Cut(args, ")")
			args, _, _ = strings.Cut(args, " |")
			fresh, err := newParser(&commands{})
			require.NoError(t, err)
			selected, err := fresh.Parse(append(strings.Fields(path), wordsOf(args)...))
			require.NoError(t, err, call)
			require.Equal(t, path, pathOf(selected))
		}
	}
}

func pathOf(c *kong.Context) string { return c.Selected().Path() }

// wordsOf splits at spaces, but not inside of single quotes.
func wordsOf(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
