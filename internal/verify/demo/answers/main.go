// Answers asks a Prometheus all that a Grafana dashboard asks, and prints a table in Markdown:
// what a panel shows, the query, the answer.
//
//	go run ./internal/verify/demo/answers deploy/grafana/onerun.json
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "answers: %v\n", err)
		os.Exit(2)
	}
}

// run is the program.
func run(args []string, out io.Writer) error {
	set := flag.NewFlagSet("answers", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	prometheus := set.String("prometheus", "http://127.0.0.1:9090", "the `URL` of the Prometheus")
	window := set.String("window", "1m", "the `time` that rates are taken over")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(out)
			fmt.Fprintln(out, "answers [flags] DASHBOARD.json")
			set.PrintDefaults()
		}
		return err
	}
	if set.NArg() != 1 {
		return errors.New("name one dashboard")
	}
	asked, err := read(set.Arg(0))
	if err != nil {
		return err
	}
	variables := strings.NewReplacer("$__rate_interval", *window, "$__range", *window,
		// Of all jobs and names, which is what they stand for at first.
		`{job=~"$job", onerun_name=~"$name"}`, "", `{job=~"$job", onerun_name=~"$name", `, "{", `{job=~"$job"}`, "", `{job=~"$job", `, "{")
	fmt.Fprint(out, "| panel | query | answer |\n|---|---|---|\n")
	for _, q := range asked {
		expr := variables.Replace(q.expr)
		answer, err := ask(*prometheus, expr, q.unit)
		if err != nil {
			return fmt.Errorf("%s: %w", expr, err)
		}
		fmt.Fprintf(out, "| %s | `%s` | %s |\n", q.panel, strings.ReplaceAll(expr, "|", `\|`), answer)
	}
	return nil
}

// A query is one of a panel.
type query struct{ panel, expr, unit string }

// read returns the queries of a dashboard.
func read(file string) (all []query, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Title       string
			FieldConfig struct{ Defaults struct{ Unit string } }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, p := range board.Panels {
		for _, t := range p.Targets {
			all = append(all, query{p.Title, t.Expr, p.FieldConfig.Defaults.Unit})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no panels with queries", file)
	}
	return all, nil
}

var client = &http.Client{Timeout: 10 * time.Second}

// ask returns the answer of Prometheus in words.
func ask(prometheus, expr, unit string) (string, error) {
	response, err := client.Get(prometheus + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return "", errors.New(answer.Error)
	}
	return sum(answer.Data.Result, unit)
}

// series is one of an answer.
type series struct {
	Metric map[string]string
	Value  [2]any // when, and what as text
}

// sum writes an answer: what is not zero, and of buckets, which count all below them, those that
// add something.
func sum(all []series, unit string) (string, error) {
	slices.SortFunc(all, func(a, b series) int { return cmp.Or(cmp.Compare(bound(a), bound(b)), cmp.Compare(about(a), about(b))) })
	var lines []string
	zeros, last := 0, 0.0
	for _, s := range all {
		text, _ := s.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", err
		}
		switch bucket := s.Metric["le"] != ""; {
		case math.IsNaN(value):
			continue // no events in all that time
		case bucket && value == last:
		case value == 0:
			zeros++
		default:
			lines = append(lines, strings.TrimPrefix(about(s)+": **"+write(value, unit)+"**", ": "))
		}
		last = value
	}
	if zeros > 0 && len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("and %d × 0", zeros))
	}
	return cmp.Or(strings.Join(lines, "<br>"), map[bool]string{true: "0", false: "nothing"}[zeros > 0]), nil
}

// bound returns that of a bucket, or 0.
func bound(s series) float64 {
	le, _ := strconv.ParseFloat(s.Metric["le"], 64) // "" is no bound
	return le
}

// about writes the labels of a series, in the order of their names.
func about(s series) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Metric)) {
		word := s.Metric[name]
		if name == "le" {
			word = "≤ " + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// write writes a value in three digits.
func write(value float64, unit string) string {
	switch {
	case unit == "percentunit":
		return strconv.FormatFloat(100*value, 'g', 3, 64) + " %"
	case unit == "s" && value < 1:
		return strconv.FormatFloat(1000*value, 'g', 3, 64) + " ms"
	case unit == "s":
		return strconv.FormatFloat(value, 'g', 3, 64) + " s"
	case value >= 1000:
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}
