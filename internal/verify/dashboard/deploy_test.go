// Package dashboard_test holds the rules, the dashboard and the runbook in deploy against the
// inventory of what is measured.
package dashboard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.yaml.in/yaml/v3"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"

	"github.com/seed-1795987d/onerun/internal/testkit/metricspage"
)

// What operators load and read must fit what is measured. deploy/metrics.md is the inventory, and a
// test of tracing compares it with the code. The tests here compare the rest with the inventory.
const (
	metricsPage = "../../../deploy/metrics.md"
	rulesFile   = "../../../deploy/prometheus/onerun.rules.yaml"
	rulesTests  = "../../../deploy/prometheus/onerun.rules.test.yaml"
	runbookPage = "../../../deploy/runbook.md"
	dashboard   = "../../../deploy/grafana/onerun.json"
	runbookURL  = "https://github.com/seed-1795987d/onerun/blob/main/deploy/runbook.md"
)

func TestDeploy_metricsAreNamedAsTheExporterNamesThem(t *testing.T) {
	units := map[string]string{"s": "_seconds", "1": ""} // a gauge of unit 1 would be a _ratio
	for _, i := range metricspage.Read(t, metricsPage) {
		want := strings.ReplaceAll(i.Name, ".", "_") + units[i.Unit]
		if i.Kind == "counter" {
			want += "_total"
		}
		require.Contains(t, []string{"histogram", "counter", "updowncounter", "gauge"}, i.Kind, i.Name)
		require.Equal(t, want, i.Prometheus)
		require.Equal(t, i.Kind == "histogram", len(i.Buckets) > 0, "%s: histograms have buckets of their own", i.Name)
		require.NotEmpty(t, i.Answers, i.Name)
		require.NotContains(t, i.Labels, "onerun_key", i.Name)
	}
}

func TestDeploy_expressionsFitTheInstruments(t *testing.T) {
	known := series(t)
	for _, queries := range []map[string]string{expressions(t), queriesOfThePage(t)} {
		for where, expr := range queries {
			q, err := parseQuery(expr)
			require.NoError(t, err, "%s: %s", where, expr)
			require.NoError(t, q.check(known), "%s: %s", where, expr)
		}
	}
}

func TestDeploy_expressionsThatDoNotFitAreRefused(t *testing.T) {
	known := series(t)
	for expr, why := range map[string]string{
		`1 + 1`:                                              "it selects nothing",
		`onerun_lease_lost_total > 0`:                        "there is no onerun_lease_lost_total",
		`rate(onerun_lease_losses_count[5m])`:                "there is no onerun_lease_losses_count",
		`rate(onerun_run_duration_seconds[5m])`:              "there is no onerun_run_duration_seconds",
		`onerun_lease_losses_total{onerun_reason="expired"}`: "onerun_lease_losses_total has no label onerun_reason",
		`onerun_lease_losses_total{job="a", onerun_loss_reason=~"expired|gone"}`:          `onerun_loss_reason of onerun_lease_losses_total is never "gone"`,
		`sum by (onerun_name) (onerun_cleanup_active)`:                                    "onerun_cleanup_active has no label onerun_name",
		`onerun_lease_active / on (onerun_name) group_left () sum(onerun_cleanup_active)`: "onerun_cleanup_active has no label onerun_name",
		`sum by (job) (rate(onerun_run_duration_seconds_bucket[5m]))`:                     "onerun_run_duration_seconds_bucket is grouped without le",
		`sum(onerun_run_active) by (job)`:                                                 "write by before what is grouped",
		`onerun_run_active @ 7`:                                                           `cannot read "@"`,
	} {
		q, err := parseQuery(expr)
		if err == nil {
			err = q.check(known)
		}
		require.EqualError(t, err, why, expr)
	}
}

func TestDeploy_everyInstrumentIsOnAPanelOrInARule(t *testing.T) {
	known, used := series(t), map[string]bool{}
	for _, expr := range expressions(t) {
		q, err := parseQuery(expr)
		require.NoError(t, err)
		for _, s := range q.selectors {
			used[known[s.name].instrument] = true
		}
	}
	for _, i := range metricspage.Read(t, metricsPage) {
		require.True(t, used[i.Name], "%s is on no panel and in no rule", i.Name)
	}
}

func TestDeploy_wordsAreThoseOfTheCode(t *testing.T) {
	code := func(path, kind string) (words []string) {
		for _, found := range regexp.MustCompile(kind+` += "(\w+)"`).FindAllStringSubmatch(readFile(t, path), -1) {
			words = append(words, found[1])
		}
		require.NotEmpty(t, words, "%s in %s", kind, path)
		return words
	}
	quoted := func(text string) (words []string) {
		for _, found := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(text, -1) {
			words = append(words, found[1])
		}
		return words
	}
	_, metrics, _ := strings.Cut(readFile(t, metricsPage), "\n## Error types\n")
	metrics, results, _ := strings.Cut(metrics, "\n## Results of adapters\n")
	_, errorTypes, _ := strings.Cut(readFile(t, runbookPage), "\n### Error types\n")
	errorTypes, _, _ = strings.Cut(errorTypes, "\n## ")
	for _, kind := range code("../../../guard/driver/errors.go", "Kind") {
		require.Contains(t, quoted(metrics), kind, metricsPage)
		require.Contains(t, quoted(errorTypes), kind, runbookPage)
	}
	for _, reason := range code("../../../guard/errors.go", "LossReason") {
		require.Contains(t, quoted(readFile(t, runbookPage)), reason, runbookPage)
	}
	for _, i := range metricspage.Read(t, metricsPage) {
		switch i.Name {
		case "onerun.lease.losses":
			require.ElementsMatch(t, code("../../../guard/errors.go", "LossReason"), i.Labels["onerun_loss_reason"])
		case "onerun.store.operation.duration":
			require.ElementsMatch(t, code("../../../guard/driver/errors.go", "Op"), i.Labels["onerun_operation"])
		}
	}
	results = strings.ReplaceAll(results, "\n`", " `") // a line that goes on
	for line := range strings.Lines(results) {
		switch adapter, words, _ := strings.Cut(line, " "); adapter {
		case "http", "grpc":
			results := code("../../../middleware/idempotency/outcome.go", "Result")
			if adapter == "grpc" { // gRPC itself bounds a message
				results = slices.DeleteFunc(results, func(r string) bool { return r == "body_too_large" })
			}
			require.Equal(t, results, quoted(words), adapter)
		case "asynq":
			results := append(code("../../../middleware/internal/claim/claim.go", "Result"), code("../../../middleware/asynq/delivery.go", "Result")...)
			require.ElementsMatch(t, results, quoted(words), adapter)
		case "cron":
			ends := slices.DeleteFunc(code("../../../middleware/cron/record.go", "Result"), func(o string) bool { return o == "running" })
			require.Equal(t, ends, quoted(words), adapter)
		}
	}
}

func TestDeploy_everyAlertHasItsPageInTheRunbook(t *testing.T) {
	var alerts []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.Equal(t, runbookURL+"#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
	}
	require.ElementsMatch(t, alerts, sections(t))
}

func TestDeploy_everyAlertIsTestedToFireAndToBeSilent(t *testing.T) {
	var tested struct {
		Tests []struct {
			Input []struct{ Series string } `yaml:"input_series"`
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, rulesTests, &tested)
	known, fires, silent := series(t), map[string]bool{}, map[string]bool{}
	for _, group := range tested.Tests {
		for _, input := range group.Input {
			q, err := parseQuery(input.Series)
			require.NoError(t, err, input.Series)
			require.NoError(t, q.check(known), input.Series)
		}
		for _, r := range group.Rules {
			fires[r.Alert] = fires[r.Alert] || len(r.Fires) > 0
			silent[r.Alert] = silent[r.Alert] || len(r.Fires) == 0
		}
	}
	for _, r := range rules(t) {
		if r.Alert != "" {
			require.True(t, fires[r.Alert], "no test in which %s fires", r.Alert)
			require.True(t, silent[r.Alert], "no test in which %s is silent", r.Alert)
		}
	}
}

func TestDeploy_dashboardCanBeRead(t *testing.T) {
	d := readDashboard(t)
	require.Equal(t, "onerun-overview", d.UID)
	require.GreaterOrEqual(t, d.SchemaVersion, 39)
	require.Equal(t, "DS_PROMETHEUS", d.Inputs[0].Name)
	var variables, rows []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	require.Equal(t, []string{"job", "name"}, variables)
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "the panel %q has an ID that is taken", p.Title)
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.Equal(t, "${DS_PROMETHEUS}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		links := regexp.MustCompile(`\[(\w+)\]\(([^)]*)\)`).FindAllStringSubmatch(p.Description, -1)
		require.NotEmpty(t, links, "%s: the description names no section of the runbook", p.Title)
		for _, link := range links {
			require.Contains(t, sections(t), link[1], p.Title)
			require.Equal(t, runbookURL+"#"+strings.ToLower(link[1]), link[2], p.Title)
		}
		for _, target := range p.Targets {
			if regexp.MustCompile(`(run_duration|wait_time)_seconds_bucket`).MatchString(target.Expr) {
				require.True(t, target.Exemplar, "%s: exemplars lead to the traces of runs and waits", p.Title)
			}
			q, err := parseQuery(target.Expr)
			require.NoError(t, err)
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.Legend, -1) {
				require.True(t, q.groupsBy(label[1]), "%s: the legend has %s, the query has not", p.Title, label[1])
			}
		}
	}
	require.Equal(t, []string{"Jobs", "Leases", "Contention", "Store", "Leaders"}, rows)
}

func TestDeploy_promtoolAgrees(t *testing.T) {
	promtool(t, "check", "rules", rulesFile)
	promtool(t, "test", "rules", rulesTests)

	// The queries that no rule has, as recording rules.
	variables := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", ".*", "$name", ".*")
	var recorded []rule
	for _, queries := range []map[string]string{panelQueries(t), queriesOfThePage(t)} {
		for _, expr := range queries {
			recorded = append(recorded, rule{Record: fmt.Sprintf("query:%d", len(recorded)), Expr: variables.Replace(expr)})
		}
	}
	require.NotEmpty(t, recorded)
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": recorded}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool(t, "check", "rules", path)
}

// promtool runs Debian's promtool, which make test installs.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		leftout.For(t, err, "promtool", "run make tools")
	}
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
}

// A seriesType is what a name in a query stands for.
type seriesType struct {
	instrument string
	labels     map[string][]string
}

// series returns all names that a query may have: those of the instruments, with the suffixes of
// histograms, and those that the rules record, which have the labels that they are grouped by.
func series(t *testing.T) map[string]seriesType {
	t.Helper()
	all := map[string]seriesType{"up": {labels: map[string][]string{"job": nil, "instance": nil}}}
	for _, i := range metricspage.Read(t, metricsPage) {
		of := func(more ...string) seriesType {
			s := seriesType{instrument: i.Name, labels: map[string][]string{"job": nil, "instance": nil}}
			for _, label := range more {
				s.labels[label] = nil
			}
			for label, values := range i.Labels {
				s.labels[label] = values
			}
			return s
		}
		if i.Kind != "histogram" {
			all[i.Prometheus] = of()
			continue
		}
		all[i.Prometheus+"_bucket"], all[i.Prometheus+"_sum"], all[i.Prometheus+"_count"] = of("le"), of(), of()
	}
	for _, r := range rules(t) {
		if r.Record == "" {
			continue
		}
		q, err := parseQuery(r.Expr)
		require.NoError(t, err)
		s := seriesType{labels: map[string][]string{}}
		for _, g := range q.groupings {
			for _, label := range g.labels {
				s.labels[label] = nil
			}
		}
		all[r.Record] = s
	}
	return all
}

// A query is what a PromQL expression selects, and by which labels it groups what. promtool knows
// the grammar; this knows the names.
type query struct {
	selectors []selector
	groupings []grouping
	matching  []string // the labels of on, ignoring, group_left, group_right
}

type selector struct {
	at       int // the place among the tokens
	name     string
	matchers []matcher
}

type matcher struct{ label, value string }

// A grouping is the labels of by or without, and the tokens that it is about.
type grouping struct {
	labels   []string
	from, to int
}

var (
	token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][\w:]*|[\d.]+[a-z]*|=~|!~|!=|>=|<=|==|[-+*/%^(){},=<>]`)
	word  = regexp.MustCompile(`^[a-zA-Z_:]`)
)

func parseQuery(expr string) (q query, err error) {
	if rest := strings.TrimSpace(token.ReplaceAllString(expr, "")); rest != "" {
		return q, fmt.Errorf("cannot read %q", rest)
	}
	tokens := append(token.FindAllString(expr, -1), "", "") // so that there is always a next one
	for at := 0; at < len(tokens)-2; at++ {
		name, end := tokens[at], closing(tokens, at+1)
		switch {
		case !word.MatchString(name) || slices.Contains([]string{"and", "or", "unless", "offset", "bool"}, name):
		case name == "by" || name == "without":
			if tokens[end+1] != "(" {
				return q, fmt.Errorf("write %s before what is grouped", name)
			}
			q.groupings = append(q.groupings, grouping{words(tokens[at:end])[1:], end, closing(tokens, end+1)})
			at = end
		case slices.Contains([]string{"on", "ignoring", "group_left", "group_right"}, name):
			q.matching = append(q.matching, words(tokens[at:end])[1:]...)
			at = end
		case slices.Contains([]string{"(", "by", "without"}, tokens[at+1]): // a function
		case tokens[at+1] == "{":
			q.selectors = append(q.selectors, selector{at, name, matchers(tokens[at+1 : end])})
			at = end
		default:
			q.selectors = append(q.selectors, selector{at: at, name: name})
		}
	}
	return q, nil
}

// matchers reads what stands between braces. promtool finds what is wrong with its grammar.
func matchers(tokens []string) (all []matcher) {
	for at, label := range tokens {
		if word.MatchString(label) && at+2 < len(tokens) {
			all = append(all, matcher{label, strings.Trim(tokens[at+2], `"`)})
		}
	}
	return all
}

// closing returns where the bracket that opens at the place is closed, or the place if none opens
// there.
func closing(tokens []string, at int) int {
	depth := 0
	for end := at; end < len(tokens)-1; end++ {
		switch tokens[end] {
		case "(", "{":
			depth++
		case ")", "}":
			depth--
		}
		if depth <= 0 {
			return end
		}
	}
	return len(tokens) - 2
}

func words(tokens []string) []string {
	return slices.DeleteFunc(slices.Clone(tokens), func(s string) bool { return !word.MatchString(s) })
}

func (q query) groupsBy(label string) bool {
	return slices.ContainsFunc(q.groupings, func(g grouping) bool { return slices.Contains(g.labels, label) })
}

// check returns an error if a name, a label or a value is none that exists, or if buckets lose
// their bounds.
func (q query) check(known map[string]seriesType) error {
	if len(q.selectors) == 0 {
		return fmt.Errorf("it selects nothing")
	}
	for _, s := range q.selectors {
		is, ok := known[s.name]
		if !ok {
			return fmt.Errorf("there is no %s", s.name)
		}
		labels := slices.Clone(q.matching)
		for _, g := range q.groupings {
			if g.from < s.at && s.at < g.to {
				labels = append(labels, g.labels...)
				if strings.HasSuffix(s.name, "_bucket") && !slices.Contains(g.labels, "le") {
					return fmt.Errorf("%s is grouped without le", s.name)
				}
			}
		}
		for _, m := range s.matchers {
			labels = append(labels, m.label)
			for value := range strings.SplitSeq(m.value, "|") {
				if can := is.labels[m.label]; len(can) > 0 && value != "" && !slices.Contains(can, value) {
					return fmt.Errorf("%s of %s is never %q", m.label, s.name, value)
				}
			}
		}
		for _, label := range labels {
			if _, ok := is.labels[label]; !ok {
				return fmt.Errorf("%s has no label %s", s.name, label)
			}
		}
	}
	return nil
}

type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	readYAML(t, rulesFile, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

type board struct {
	UID           string
	SchemaVersion int
	Inputs        []struct{ Name string } `json:"__inputs"`
	Templating    struct {
		List []struct {
			Name  string
			Query struct{ Query string }
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		Targets                  []struct {
			RefID    string
			Expr     string
			Legend   string `json:"legendFormat"`
			Exemplar bool
		}
	}
}

func readDashboard(t *testing.T) (d board) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(readFile(t, dashboard)), &d))
	return d
}

// panelQueries returns the queries of the dashboard by where they are, those that fill its
// variables among them.
func panelQueries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	d := readDashboard(t)
	for _, v := range d.Templating.List {
		values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Query.Query)
		require.NotNil(t, values, "the variable %s", v.Name)
		all["the variable "+v.Name] = fmt.Sprintf("group by (%s) (%s)", values[2], values[1])
	}
	for _, p := range d.Panels {
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			all[fmt.Sprintf("the panel %q, %s", p.Title, target.RefID)] = target.Expr
		}
	}
	return all
}

// expressions returns those of the rules and of the dashboard, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := panelQueries(t)
	for _, r := range rules(t) {
		all["the rule "+r.Record+r.Alert] = r.Expr
	}
	return all
}

// queriesOfThePage returns the queries that the runbook tells to look at: what stands in
// backquotes and calls or selects.
func queriesOfThePage(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(readFile(t, runbookPage)) {
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			if regexp.MustCompile(`(onerun_\w+|up){`).MatchString(code[1]) {
				all[fmt.Sprintf("query %d of the runbook", len(all)+1)] = code[1]
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// sections returns the alerts that the runbook has a section for.
func sections(t *testing.T) (alerts []string) {
	t.Helper()
	for _, heading := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(readFile(t, runbookPage), -1) {
		alerts = append(alerts, heading[1])
	}
	return alerts
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, path)), into))
}
