package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// completions returns what onerun prints for the words of a command line.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	e := execute(t, s.bare(append([]string{"__complete"}, words...)...))
	require.Zero(t, e.wait(), e.errs.String())
	var found []string
	for line := range strings.Lines(e.out.String()) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found = append(found, word)
	}
	return found
}

func TestCompletion_ofEachKindOfWord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		words, want []string
	}{
		"a command":                   {[]string{"re"}, []string{"records", "resume"}},
		"a command of a group":        {[]string{"key", "g"}, []string{"grpc"}},
		"what help is for":            {[]string{"help", "key", "c"}, []string{"cron"}},
		"a command after a flag":      {[]string{"--namespace", "run", "ru"}, []string{"run"}},
		"flags of the command":        {[]string{"run", "--once"}, []string{"--once", "--once-per"}},
		"flags of the program":        {[]string{"key", "http", "--na"}, []string{"--namespace"}},
		"a value":                     {[]string{"--backend", "re"}, []string{"reentrant", "redlock"}},
		"a value behind =":            {[]string{"show", "--backend=re"}, []string{"--backend=reentrant", "--backend=redlock"}},
		"a value behind =, by bash":   {[]string{"show", "--backend", "=", "si"}, []string{"single"}},
		"nothing behind =, by bash":   {[]string{"show", "--backend", "="}, []string{"single", "reentrant", "redlock"}},
		"a file":                      {[]string{"--tls-ca", "/et"}, []string{":files"}},
		"a shell":                     {[]string{"completion", "z"}, []string{"zsh"}},
		"a second argument":           {[]string{"completion", "zsh", "z"}, nil},
		"a key":                       {[]string{"show", "ru"}, nil},
		"a value without a list":      {[]string{"run", "--ttl", ""}, nil},
		"the value of a short flag":   {[]string{"run", "-E", "--t"}, nil},
		"a command to run":            {[]string{"run", "--ttl", "9s", "k", "--", "l"}, []string{":command 6"}},
		"flags of a command to run":   {[]string{"run", "k", "--", "ls", "--ttl"}, []string{":command 4"}},
		"a key that begins with -":    {[]string{"show", "--", "--ttl"}, nil},
		"an unknown flag":             {[]string{"run", "--unknown=x"}, nil},
		"an unknown flag, and a word": {[]string{"--unknown", "jo"}, []string{"jobs"}},
	} {
		require.Equal(t, test.want, completions(t, test.words...), name)
	}
	require.Contains(t, completions(t), "run", "no words")
	require.NotContains(t, completions(t, ""), "__complete")
}

// Each shell offers what onerun says, and completes a command to run by itself.
func TestCompletion_inRealShells(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"bash": `
source <(onerun completion bash)
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; _onerun 2>/dev/null; echo $(printf '%s\n' "${COMPREPLY[@]}" | sort); }
offer onerun rec
offer onerun show --backend = re
offer onerun --tls-ca some
offer onerun run k -- tru`,
		// The parts of zsh that show something need a terminal, so these functions replace them.
		"zsh": `
compdef() { :; }
source <(onerun completion zsh)
_describe() { print -- ${(o)${(P)2}%%:*}; }
_files() { print some-file; }
_normal() { print ${${(ok)commands}[(r)tru*]} $words $CURRENT; }
offer() { words=("$@"); CURRENT=$#; _onerun; }
offer onerun rec
offer onerun --backend re
offer onerun --tls-ca some
offer onerun run k -- tru`,
		"fish": `
onerun completion fish | source
function offer; echo (complete -C "$argv" | string replace -r '\t.*' '' | sort); end
offer onerun rec
offer onerun --backend re
offer onerun --tls-ca some
offer onerun run k -- tru`,
	}
	for shell, script := range scripts {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				leftout.Unless(t, "ONERUN_REQUIRE_SHELLS", err, shell, "make tools")
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "some-file"), nil, 0o600))
			cmd := exec.CommandContext(t.Context(), path, "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "PATH="+filepath.Dir(program)+":/usr/bin:/bin")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			lines := strings.Split(string(out), "\n")
			require.GreaterOrEqual(t, len(lines), 4, string(out))
			require.Equal(t, "records", lines[0], string(out))
			require.Equal(t, "redlock reentrant", lines[1], string(out))
			require.Equal(t, "some-file", lines[2], string(out))
			require.Contains(t, lines[3], "true", string(out))
		})
	}
}

func TestCompletion_refusesOtherShells(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	e := execute(t, s.bare("completion", "tcsh"))
	require.Equal(t, 125, e.wait())
	require.Contains(t, e.errs.String(), `must be one of "bash","zsh","fish" but got "tcsh"`)
}
