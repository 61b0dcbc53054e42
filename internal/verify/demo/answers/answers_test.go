package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func board(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "board.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// prometheus answers each query by its text.
func prometheus(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.FormValue("query")]
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			answer = `{"status":"error","error":"parse error"}`
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func vector(series string) string { return `{"status":"success","data":{"result":[` + series + `]}}` }

const one = `{"panels":[{"title":"row","type":"row"},{"title":"Runs","fieldConfig":{"defaults":{"unit":"s"}},"targets":[{"expr":"rate(x{job=~\"$job\", a=~\"b|c\"}[$__rate_interval])"},{"expr":"y{job=~\"$job\", onerun_name=~\"$name\"}"}]}]}`

func TestAnswers_printsATable(t *testing.T) {
	url := prometheus(t, map[string]string{
		`rate(x{a=~"b|c"}[2m])`: vector(`{"metric":{"b":"two","a":"one"},"value":[1,"0.123456"]},{"metric":{"a":"none"},"value":[1,"0"]},{"metric":{"a":"x"},"value":[1,"NaN"]},` +
			`{"metric":{"a":"late"},"value":[1,"12"]}`),
		"y": vector(``),
	})
	var out bytes.Buffer
	require.NoError(t, run([]string{"-prometheus", url, "-window", "2m", board(t, one)}, &out))
	require.Equal(t, "| panel | query | answer |\n|---|---|---|\n"+
		"| Runs | `rate(x{a=~\"b\\|c\"}[2m])` | late: **12 s**<br>one two: **123 ms**<br>and 1 × 0 |\n"+
		"| Runs | `y` | nothing |\n", out.String())
}

func TestSum_showsBucketsInOrderAndOnlyThoseThatAddSomething(t *testing.T) {
	bucket := func(le, value string) series { return series{map[string]string{"le": le}, [2]any{1.0, value}} }
	text, err := sum([]series{bucket("+Inf", "7"), bucket("10", "7"), bucket("5", "3"), bucket("0.1", "0"), bucket("1", "3")}, "")
	require.NoError(t, err)
	require.Equal(t, "≤ 1: **3**<br>≤ 10: **7**", text)
	text, err = sum([]series{{nil, [2]any{1.0, "0"}}}, "")
	require.NoError(t, err)
	require.Equal(t, "0", text)
	_, err = sum([]series{{nil, [2]any{1.0, "x"}}}, "")
	require.ErrorContains(t, err, "invalid syntax")
}

func TestWrite_writesWithTheUnit(t *testing.T) {
	require.Equal(t, "33.3 %", write(1.0/3, "percentunit"))
	require.Equal(t, "12345", write(12345, "short"))
	require.Equal(t, "1.23 ms", write(.001234, "s"))
	require.Equal(t, "0.333", write(1.0/3, "short"))
}

func TestAnswers_saysWhatIsWrong(t *testing.T) {
	url := prometheus(t, map[string]string{"y": "no JSON"})
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "name one dashboard"},
		{[]string{"-x"}, "flag provided but not defined: -x"},
		{[]string{"nowhere.json"}, "open nowhere.json"},
		{[]string{board(t, "[")}, "unexpected end of JSON input"},
		{[]string{board(t, "{}")}, "has no panels with queries"},
		{[]string{"-prometheus", url, board(t, one)}, "parse error"},
		{[]string{"-prometheus", url, board(t, `{"panels":[{"targets":[{"expr":"y"}]}]}`)}, "y: 200 OK: invalid character"},
		{[]string{"-prometheus", "http://127.0.0.1:1", board(t, one)}, "connection refused"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(c.args, &out), c.says)
	}
}
