package main

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// completeArg is the command by which a shell asks for completions. The words follow it, from the
// first behind "onerun" to the one that is being typed.
const completeArg = "__complete"

// Lines by which completions ask the shell for its own.
const (
	completeFiles   = ":files"
	completeCommand = ":command %d\n" // a command line that begins at that word, from 0
)

//go:embed completion/onerun.bash
var bashCompletion string

//go:embed completion/onerun.zsh
var zshCompletion string

//go:embed completion/onerun.fish
var fishCompletion string

// completionCommand is "onerun completion".
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help implements kong.HelpProvider.
func (c *completionCommand) Help() string {
	return `Put the line that fits your shell into its startup file:

  source <(onerun completion bash)
  source <(onerun completion zsh)
  onerun completion fish | source

What it completes comes from the program "onerun" in PATH, and never from a server.`
}

// Run prints the script.
func (c *completionCommand) Run(*globals) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	return terminal.Own(os.Stdout, script)
}

// complete returns what the last of the words can be: lines of a word, a tab and what it means, or
// a request for completions of the shell.
func complete(model *kong.Node, words []string) string {
	at := completing{node: model}
	current := ""
	if n := len(words); n > 0 {
		words, current = words[:n-1], words[n-1]
	}
	for i, word := range words {
		if word == "--" && at.value == nil {
			if at.node.Name == "run" {
				return fmt.Sprintf(completeCommand, i+2) // "onerun" is word 0
			}
			return ""
		}
		at.pass(word)
	}
	found := at.candidates(current)
	if len(found) == 0 {
		return ""
	}
	return strings.Join(found, "\n") + "\n"
}

// completing is where a command line ends.
type completing struct {
	node  *kong.Node
	value *kong.Flag // its value comes next
	args  int        // how many arguments the command has
}

// pass goes past a word.
func (c *completing) pass(word string) {
	switch {
	case c.value != nil && word == "=": // bash makes three words of --flag=value
	case c.value != nil:
		c.value = nil
	case strings.HasPrefix(word, "-"):
		c.value = c.flag(word)
	default:
		if child := c.child(word); child != nil {
			c.node = child
		} else if c.node.Parent != nil || word != "help" { // "help" shows the help of what follows
			c.args++
		}
	}
}

func (c *completing) child(name string) *kong.Node {
	at := slices.IndexFunc(c.node.Children, func(n *kong.Node) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	return c.node.Children[at]
}

// flag returns the flag of a word, if its value is the next one.
func (c *completing) flag(word string) *kong.Flag {
	for _, group := range c.node.AllFlags(true) {
		for _, f := range group {
			if !f.IsBool() && (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) {
				return f
			}
		}
	}
	return nil
}

// candidates returns what can be in place of the last word.
func (c *completing) candidates(current string) []string {
	name, value, whole := strings.Cut(current, "=")
	switch {
	case c.value != nil:
		return valuesOf(c.value, "", strings.TrimPrefix(current, "="))
	case strings.HasPrefix(current, "-") && whole:
		return valuesOf(c.flag(name), name+"=", value)
	case strings.HasPrefix(current, "-"):
		return c.flags(current)
	}
	var found []string
	add := func(word, help string) {
		if strings.HasPrefix(word, current) {
			found = append(found, word+"\t"+help)
		}
	}
	for _, child := range c.node.Children {
		add(child.Name, child.Help)
	}
	if c.node.Parent == nil {
		add("help", "Show the help of a command.")
	}
	if c.args < len(c.node.Positional) {
		for _, word := range c.node.Positional[c.args].EnumSlice() {
			add(word, "")
		}
	}
	return found
}

func (c *completing) flags(prefix string) (found []string) {
	for _, group := range c.node.AllFlags(true) {
		for _, f := range group {
			if name := "--" + f.Name; strings.HasPrefix(name, prefix) {
				found = append(found, name+"\t"+f.Help)
			}
		}
	}
	return found
}

// valuesOf returns the values of a flag that begin with a prefix. The name of the flag is before
// each, if both are one word.
func valuesOf(f *kong.Flag, name, prefix string) (found []string) {
	switch {
	case f == nil:
		return nil
	case f.PlaceHolder == "FILE" && name == "":
		return []string{completeFiles}
	case f.Enum == "":
		return nil
	}
	for _, value := range f.EnumSlice() {
		if strings.HasPrefix(value, prefix) {
			found = append(found, name+value+"\t")
		}
	}
	return found
}
