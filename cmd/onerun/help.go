package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// withExamples adds the examples of each command to its help.
func withExamples(model *kong.Node) {
	for _, node := range model.Leaves(true) {
		text := "Examples:\n"
		for _, example := range examples[node.Path()] {
			text += "\n  " + example
		}
		node.Detail = strings.TrimPrefix(node.Detail+"\n\n"+text, "\n\n")
	}
}

// placeholder is an argument as kong writes it, such as <key> or [<prefix>] or <job> ... with three
// points.
var placeholder = regexp.MustCompile(`<([a-z]+)>( \.\.\.)?`)

// named writes the arguments as people know them: KEY... for several.
func named(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name, rest, _ := strings.Cut(strings.ToUpper(found[1:]), ">")
		return name + strings.TrimSpace(rest)
	})
}

// usage returns how a command is called. node is the program or a command.
func usage(node *kong.Node) string {
	words := []string{node.Path()}
	if node.Parent == nil {
		words = nil
	}
	words = append(words, "[flags]")
	if required := node.FlagSummary(true); required != "" {
		words = append(words, required)
	}
	for _, arg := range node.Positional {
		words = append(words, named(arg.Summary()))
	}
	switch {
	case len(node.Children) > 0:
		words = append(words, "COMMAND")
	case node.Name == "run":
		words = append(words, "-- COMMAND [ARG...]")
	}
	return strings.Join(words, " ")
}

// printHelp prints the help of kong with usage lines as people know them.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	stdout := ctx.Stdout
	var text bytes.Buffer
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = stdout
	if err != nil {
		return err
	}
	lines := map[string]string{
		"Usage: onerun" + ctx.Model.Summary(): "Usage: onerun " + usage(ctx.Model.Node),
	}
	for _, node := range append(ctx.Model.Leaves(true), ctx.Model.Children...) {
		lines["  "+node.Summary()] = "  " + usage(node)
		lines["Usage: onerun "+node.Summary()] = "Usage: onerun " + usage(node)
	}
	var better strings.Builder
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSuffix(line, "\n")
		if own, ok := lines[line]; ok {
			line = own
		} else if strings.HasPrefix(line, "  <") || strings.HasPrefix(line, "  [<") || strings.HasPrefix(line, "Run \"") {
			line = aligned(line)
		}
		better.WriteString(line + "\n")
	}
	return terminal.Own(stdout, better.String())
}

// aligned names the arguments of a line, and keeps the column of the text after them.
func aligned(line string) string {
	first, help, ok := strings.Cut(line, "    ")
	if !ok {
		return named(line)
	}
	return fmt.Sprintf("%-*s%s", len(first)+4, named(first), help)
}

// inWords names the arguments of an error that says which one is missing.
func inWords(err error) error {
	if text := err.Error(); strings.HasPrefix(text, `expected "<`) {
		return errors.New(named(text))
	}
	return err
}
