package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// object reads the only line of a text, which must be JSON.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, "\n"), "%q", text)
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &o), text)
	return o
}

func TestJSON_errors(t *testing.T) {
	s := newSite(t)
	keys := map[string]any{
		"show k": "k", "break k": "k", "forget k": "k", "hold k --for=1h": "k", "ls": nil, "jobs": nil, "ps": nil,
		"log": nil, "records job": nil, "pause job": nil, "resume job": nil, "trigger job": nil,
	}
	started := map[string]*execution{} // each asks again for a second
	for command := range keys {
		started[command] = s.start(append([]string{"--json", "--redis=redis://127.0.0.1:1"}, strings.Fields(command)...)...)
	}
	for command, key := range keys {
		e := started[command]
		require.Equal(t, 125, e.wait(), command)
		require.Empty(t, e.out.String(), command)
		o := object(t, e.errs.String())
		require.Contains(t, o["error"], "refused", command)
		require.Equal(t, key, o["key"], command)
		require.InDelta(t, 125, o["exit"], 0, command)
	}
	for command, says := range map[string]string{
		"show --json": "KEY", "--json nonsense": "nonsense", "run --json k --nope -- true": "--nope",
		"ui --json --listen=0.0.0.0:0": "--listen", "doctor --json --redis=http://x": "--redis",
	} {
		code, out, errs := s.run(strings.Fields(command)...)
		require.Equal(t, 125, code, command)
		require.Empty(t, out, command)
		require.Contains(t, object(t, errs)["error"], says, command)
	}
	_, _, errs := s.run("show", "--", "--json", "k")
	require.True(t, strings.HasPrefix(errs, "onerun: "), errs)
}

func TestJSON_errorsOfRun(t *testing.T) {
	s := newSite(t)
	for command, want := range map[string]struct {
		code int
		says string
	}{
		"run k -- no-such-command":                         {127, "no-such-command"},
		"run k -- /etc/passwd":                             {126, "permission denied"},
		"run k":                                            {125, "no command"},
		"run -E 300 k -- true":                             {125, "-E: 300"},
		"run --ttl=1ms k -- true":                          {125, "--ttl: 1ms"},
		"run --redis=http://x k -- true":                   {125, "--redis"},
		"run --redis=redis://127.0.0.1:1 k -- true --json": {125, "refused"},
	} {
		code, out, errs := s.run(append([]string{"--json"}, strings.Fields(command)...)...)
		require.Equal(t, want.code, code, command)
		require.Empty(t, out, command)
		o := object(t, errs)
		require.Equal(t, "error", o["outcome"], command)
		require.Contains(t, o["error"], want.says, command)
		require.Equal(t, []any{"k"}, o["keys"], command)
		require.InDelta(t, want.code, o["exit"], 0, command)
	}
}

func TestJSON_lsSaysThatThereAreMore(t *testing.T) {
	s := newSite(t)
	for _, key := range []string{"a1", "a2", "a3"} {
		require.Zero(t, first(s.run("hold", key, "--for=1h")))
	}
	for n, more := range map[string]bool{"2": true, "3": false} {
		var page struct {
			Keys []struct{ Key string }
			More *bool
		}
		_, out, _ := s.run("ls", "--json", "-n", n)
		require.NoError(t, json.Unmarshal([]byte(out), &page))
		require.Len(t, page.Keys, min(3, int(n[0]-'0')))
		require.NotNil(t, page.More)
		require.Equal(t, more, *page.More)
	}
}

// A duration is a number of seconds, and null if it does not end.
func TestJSON_durations(t *testing.T) {
	s := newSite(t)
	const about = 20 // seconds that the commands may take
	require.Zero(t, first(s.run("hold", "k", "--for=1h")))
	require.Zero(t, first(s.run("run", "--once=2h", "done", "--", "true")))
	var shown struct {
		Holders []struct{ Left float64 }
		Done    struct{ Left float64 }
	}
	_, out, _ := s.run("show", "--json", "k")
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.InDelta(t, time.Hour.Seconds(), shown.Holders[0].Left, about)
	_, out, _ = s.run("show", "--json", "done")
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.InDelta(t, 2*time.Hour.Seconds(), shown.Done.Left, about)
	_, _, errs := s.run("run", "--json", "k", "--", "true")
	require.InDelta(t, time.Hour.Seconds(), object(t, errs)["left"], about)
	var log []struct{ For float64 }
	_, out, _ = s.run("log", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &log))
	require.InDelta(t, time.Hour.Seconds(), log[0].For, 0)

	leases, err := s.client.Keys(t.Context(), "onerun:*lease:k").Result()
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.NoError(t, s.client.Persist(t.Context(), leases[0]).Err())
	_, out, _ = s.run("show", "--json", "k")
	require.Contains(t, out, `"left": null`)
}

// JSON has no bytes that are not UTF-8.
func TestJSON_namesAKeyThatIsNotUTF8(t *testing.T) {
	s := newSite(t)
	_, out, _ := s.run("show", "--json", latin)
	var k struct {
		Bytes []byte `json:"key_bytes"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &k))
	require.Equal(t, latin, string(k.Bytes))
	_, out, _ = s.run("show", "--json", "plain")
	require.NotContains(t, out, "key_bytes")
}

// JSON has no bytes that are not UTF-8, so run and log say them in Base64.
func TestJSON_hasTheBytesOfKeys(t *testing.T) {
	s := newSite(t)
	require.Zero(t, first(s.run("hold", "--for=1h", latin)))
	code, _, errs := s.run("run", "--json", latin, "--", "true")
	require.Equal(t, 75, code)
	require.Contains(t, errs, `"key_bytes":["a+l4"]`)
	_, out, _ := s.run("log", "--json")
	require.Contains(t, out, `"key_bytes": "a+l4"`)
}
