package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
)

var update = flag.Bool("update", false, "write the golden file anew")

const claims = "testdata/claims.jsonl"

func draw(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, strings.NewReader(""), &out))
	return out.String()
}

// texts returns what stands in the picture, and fails unless it is XML.
func texts(t *testing.T, svg string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	within := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			require.NotContains(t, []string{"script", "image", "foreignObject", "a"}, token.Name.Local)
			within = token.Name.Local == "text"
		case xml.EndElement:
			within = false
		case xml.CharData:
			if within {
				all = append(all, string(token))
			}
		}
	}
}

func TestWaterfall_drawsSpansBelowTheirParents(t *testing.T) {
	got := draw(t, claims)
	if *update {
		require.NoError(t, os.WriteFile("testdata/claims.svg", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/claims.svg")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run with -update and look at the picture")
	require.Equal(t, []string{
		"0", "50 ms", "100 ms", "150 ms",
		"trace 11111111 · server 1",
		"POST /claim/{user}", "96 ms · 200",
		"acquire claim", "2 ms · acquired",
		"run claim", "92.5 ms · ok",
		"acquire stock", "1 ms · acquired",
		"run stock", "86 ms · ok",
		"release claim", "1.5 ms · released",
		"trace 22222222 · server 2",
		"POST /claim/{user}", "2 ms · 409",
		"acquire claim", "700 µs · busy → holder",
		"trace 44444444",
		`run <job> & "co"`, "60.3 ms · lost",
		"trace 33333333 · server 2",
		"POST /claim/{user}", "2 ms · 200",
		"acquire claim", "400 µs · done → finished → previous (not drawn)",
	}, texts(t, got))
	require.Equal(t, 2, strings.Count(got, `class="link"`))
	require.Equal(t, 1, strings.Count(got, `class="failed"`))
	require.Equal(t, 3, strings.Count(got, `class="server"`))
}

func TestWaterfall_readsStandardInput(t *testing.T) {
	file, err := os.Open(claims)
	require.NoError(t, err)
	defer file.Close()
	var out bytes.Buffer
	require.NoError(t, run(nil, file, &out))
	require.Equal(t, draw(t, claims), out.String())
}

func TestWaterfall_drawsOneTraceWithThoseThatLinksJoinToIt(t *testing.T) {
	headings := func(args ...string) (all []string) {
		for _, text := range texts(t, draw(t, append(args, claims)...)) {
			if id, ok := strings.CutPrefix(text, "trace "); ok {
				all = append(all, id[:4])
			}
		}
		return all
	}
	require.Equal(t, []string{"1111", "2222", "3333"}, headings("-trace", "11111111"), "what links to it")
	require.Equal(t, []string{"1111", "2222"}, headings("-trace", "2222"), "what it links to")
	require.Equal(t, []string{"4444"}, headings("-trace", "4"))
}

func TestWaterfall_givesLinksThatPassEachOtherLanesOfTheirOwn(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	span := func(n int, links ...int) spans.Span {
		s := spans.Span{Name: "s", Trace: fmt.Sprintf("%032d", n), ID: fmt.Sprint(n), Start: at.Add(time.Duration(n)), End: at.Add(100)}
		for _, to := range links {
			s.Links = append(s.Links, spans.Link{Trace: fmt.Sprintf("%032d", to), ID: fmt.Sprint(to)})
		}
		return s
	}
	p := newPicture([]spans.Span{span(1), span(2), span(3, 1), span(4, 2), span(5), span(6, 5, 6)})
	lanes := map[int]int{} // by the span that links
	for _, l := range p.links {
		lanes[l.from/2+1] = l.lane
	}
	require.Equal(t, map[int]int{3: 0, 4: 1, 6: 0}, lanes, "none for a link to itself")
}

func TestWaterfall_doesNotGoRoundInCircles(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	one := spans.Span{Name: "a", Trace: strings.Repeat("1", 32), ID: "a", Parent: "b", Start: at, End: at}
	other := one
	other.ID, other.Parent = "b", "a"
	require.NotPanics(t, func() { _ = newPicture([]spans.Span{one, other}).String() })
}

func TestWaterfall_saysWhatIsWrong(t *testing.T) {
	text, err := os.ReadFile(claims)
	require.NoError(t, err)
	for _, c := range []struct {
		args     []string
		in, says string
	}{
		{nil, "", "there are no spans"},
		{nil, "  0.01s  server 1   serves\n", "spans: span 1, before byte"},
		{nil, strings.Repeat(string(text), 19), "209 spans are too many for one picture, of at most 200: choose a trace with -trace ID"},
		{[]string{"-trace", "abc"}, string(text), "-trace abc: there is none"},
		{[]string{"nowhere.jsonl"}, "", "open nowhere.jsonl"},
		{[]string{"a", "b"}, "", `unexpected argument "b"`},
		{[]string{"-colour"}, "", "flag provided but not defined: -colour"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(c.args, strings.NewReader(c.in), &out), c.says)
		require.Empty(t, out.String())
	}
}

func TestBrief_hasThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 7: "7 ns", 999: "999 ns", 1234: "1.23 µs", 45678: "45.7 µs", 456789: "457 µs", 2 * time.Millisecond: "2 ms",
		1234567890: "1.23 s", 12345678901: "12.3 s", 59 * time.Second: "59 s", 90 * time.Second: "1m30s",
	} {
		require.Equal(t, want, brief(d))
	}
}
