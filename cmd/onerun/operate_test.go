package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// An operator finds who holds a stuck key, since when, and breaks the lease. The command that held
// it is dead before the next one begins.
func TestOperate_breaksAStuckKeyWithoutTwoAtATime(t *testing.T) {
	s := newSite(t)
	s.start("run", "--ttl=9s", "--label=web-1", "report", "--", "sh", "-c", "echo $$ >pid; exec sleep 100")
	pid := s.pid("pid")
	code, out, _ := s.run("show", "report")
	require.Zero(t, code)
	require.Regexp(t, `(?s)^report is held\n +by +web-1\n  since +20.* UTC \(\S+\)\n  left +\S+, unless it is renewed\n  fence +\d+\n  id +\w+\n$`, out)
	code, out, _ = s.run("ls", "rep")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^report +held +\S+ +\S+ +web-1$`, out)

	code, out, _ = s.run("break", "report", "--by=alice", "--why=it hangs")
	require.Zero(t, code)
	require.Regexp(t, `^broken: report was held by web-1 for \S+; the key is free in \S+\n$`, out)
	_, _, errs := s.run("run", "report", "--", "true")
	require.Contains(t, errs, "broken by alice: it hangs; was web-1 holds it")
	code, _, errs = s.run("run", "--wait=20s", "report", "--", "sh", "-c", "! kill -0 "+s.read("pid"))
	require.Zero(t, code, "the command still ran: %s", errs)
	require.False(t, alive(pid))

	code, out, _ = s.run("break", "report")
	require.Equal(t, 1, code)
	require.Equal(t, "nobody holds report\n", out)
	code, out, _ = s.run("log")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^20.* UTC +alice +break +report +web-1 +it hangs$`, out)
}

func TestOperate_asksWhichOfSeveralHoldersIsMeant(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"first", "second"} {
		s.start("run", "--limit=3", "--label="+name, "licences", "--", "sh", "-c", "echo >"+name+"; exec sleep 100")
		s.written(name)
	}
	code, _, errs := s.run("break", "licences")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "2 hold \"licences\": name the ID of one of them: ")
	var k struct {
		State   string
		Holders []struct {
			ID, Label  string
			MaxHolders int `json:"max_holders"`
			Seat       int
			Since      time.Time
		}
	}
	_, out, _ := s.run("show", "--json", "licences")
	require.NoError(t, json.Unmarshal([]byte(out), &k))
	require.Equal(t, "held", k.State)
	require.Len(t, k.Holders, 2)
	require.Equal(t, 3, k.Holders[1].MaxHolders)
	require.NotZero(t, k.Holders[1].Seat)
	require.WithinDuration(t, time.Now(), k.Holders[1].Since, time.Minute)
	code, out, _ = s.run("break", "--now", "licences", k.Holders[1].ID)
	require.Zero(t, code)
	require.True(t, strings.HasPrefix(out, "broken: licences was held by "+k.Holders[1].Label+" for "), out)
	_, out, _ = s.run("show", "--json", "licences")
	require.NoError(t, json.Unmarshal([]byte(out), &k))
	require.Len(t, k.Holders, 1)
}

func TestOperate_makesYesterdaysJobRunAgain(t *testing.T) {
	s := newSite(t)
	run := func() string {
		code, out, _ := s.run("run", "--once=24h", "--label=web-1", "nightly", "--", "echo", "ran")
		require.Zero(t, code)
		return out
	}
	require.Equal(t, "ran\n", run())
	require.Empty(t, run())
	_, out, _ := s.run("show", "nightly")
	require.Regexp(t, `(?s)^nightly is done\n +by +web-1\n  at +20.* UTC \(\S+ ago\)\n  left +(24h0m0s|23h59m\d+s)\n`, out)
	_, out, _ = s.run("ls", "nightly")
	require.Regexp(t, `(?m)^nightly +done +\d\S+ +\S+ +web-1$`, out)
	code, out, _ := s.run("forget", "nightly", "--why=its input was wrong")
	require.Zero(t, code)
	require.Equal(t, "forgotten: nightly can run again\n", out)
	require.Equal(t, "ran\n", run())
	code, out, _ = s.run("forget", "unknown")
	require.Equal(t, 1, code)
	require.Equal(t, "unknown is not done\n", out)
}

func TestOperate_keepsAKeyBusy(t *testing.T) {
	s := newSite(t)
	code, out, _ := s.run("hold", "--for=2h", "--by=alice", "--why=migration", "nightly")
	require.Zero(t, code)
	require.Regexp(t, `^held: nightly for 2h0m0s, as \w+\n$`, out)
	code, _, errs := s.run("run", "nightly", "--", "true")
	require.Equal(t, 75, code)
	require.Contains(t, errs, "held by alice: migration")
	code, _, _ = s.run("hold", "--for=1h", "nightly")
	require.Equal(t, 75, code)
	code, out, _ = s.run("break", "nightly")
	require.Equal(t, 1, code)
	require.Equal(t, "nobody holds nightly\n", out, "it is only kept")
	code, out, _ = s.run("break", "--now", "nightly")
	require.Zero(t, code)
	require.Equal(t, "broken: nightly is free; it was kept: held by alice: migration\n", out)
	require.Zero(t, first(s.run("run", "nightly", "--", "true")))
}

// cron runs jobs in this process, each every second, on the server of the site.
func (s *site) cron(jobs map[string]func(context.Context) error) {
	s.t.Helper()
	g, err := guard.New(single.New(s.client), guard.WithoutNamespace(), guard.WithLabel("replica 1"))
	require.NoError(s.t, err)
	c := cron.New()
	all, err := guardcron.New(g, c)
	require.NoError(s.t, err)
	for name, f := range jobs {
		_, err = all.AddFunc(name, "@every 1s", f)
		require.NoError(s.t, err)
	}
	i, err := inspect.New(g)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		_ = i.Announce(ctx)
	}()
	c.Start()
	s.t.Cleanup(func() {
		cancel()
		<-announced
		<-c.Stop().Done()
		require.NoError(s.t, all.Close(context.Background()))
		require.NoError(s.t, g.Close(context.Background()))
	})
}

func TestOperate_pausesAllNightlyJobsAndShowsTheirTicks(t *testing.T) {
	s := newSite(t)
	var ran atomic.Int32
	s.cron(map[string]func(context.Context) error{
		"nightly report": func(context.Context) error { ran.Add(1); return io.ErrUnexpectedEOF },
		"nightly backup": func(context.Context) error { return nil },
		"hourly":         func(context.Context) error { return nil },
	})
	s.eventually(func() bool { return ran.Load() > 1 }, "the job runs")
	_, out, _ := s.run("records", "nightly report")
	require.Regexp(t, `(?m)^20.* UTC +failed +replica 1 +20.* UTC +\d\S* +unexpected EOF$`, out)
	code, out, _ := s.run("pause", "nightly*", "--for=2h", "--why=maintenance")
	require.Zero(t, code)
	require.Equal(t, "paused for 2h0m0s: nightly backup, nightly report\n", out)
	s.eventually(func() bool {
		_, out, _ = s.run("records", "-n1", "nightly report")
		return regexp.MustCompile(`(?m)^20.* UTC +skipped +.*the job is paused$`).MatchString(out)
	}, "a tick is skipped")
	_, out, _ = s.run("jobs")
	require.Regexp(t, `(?m)^nightly report +@every 1s +- +paused +20`, out)
	require.Regexp(t, `(?m)^hourly +@every 1s +- +active +20`, out)

	before := ran.Load()
	code, out, _ = s.run("trigger", "nightly report")
	require.Zero(t, code)
	require.Equal(t, "triggered: nightly report\n", out)
	s.eventually(func() bool { return ran.Load() == before+1 }, "the job runs, though it is paused")
	code, out, _ = s.run("resume", "nightly*")
	require.Zero(t, code)
	require.Equal(t, "resumed: nightly backup, nightly report\n", out)
	s.eventually(func() bool { return ran.Load() > before+1 }, "the job runs again")

	code, _, errs := s.run("pause", "weekly")
	require.Equal(t, 125, code)
	require.Contains(t, errs, `no process has announced a job "weekly"`)
	_, out, _ = s.run("ps")
	require.Contains(t, out, "replica 1")
	var records []map[string]any
	_, out, _ = s.run("records", "--json", "-n", "3", "hourly")
	require.NoError(t, json.Unmarshal([]byte(out), &records))
	require.Len(t, records, 3)
}

func TestUI_servesThePageToItsOperatorOnly(t *testing.T) {
	s := newSite(t)
	code, _, errs := s.run("ui", "--listen=0.0.0.0:0")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "--listen: \"0.0.0.0\" is no loopback address")
	s.start("run", "--label=web-1", "report", "--", "sh", "-c", "echo >began; exec sleep 100")
	s.written("began")
	e := s.start("ui", "--listen=127.0.0.1:0")
	var printed string
	s.eventually(func() bool {
		printed = regexp.MustCompile(`http://\S+`).FindString(e.errs.String())
		return printed != ""
	}, "it says where it serves")
	open, _, _ := strings.Cut(printed, "?")
	ask := func(client *http.Client, method, url, host, form string) (string, int) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form))
		require.NoError(t, err)
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return string(body), answer.StatusCode
	}
	// another user of this host, who knows the port, and what the operator could do
	hold := "what=hold&k=other&for=1h"
	for _, url := range []string{open, open + "?token=", open + "?token=guess", open + "key?k=report", open + "log"} {
		body, status := ask(http.DefaultClient, http.MethodGet, url, "", "")
		require.Equal(t, http.StatusForbidden, status, url)
		require.NotContains(t, body, "web-1")
	}
	_, status := ask(http.DefaultClient, http.MethodPost, open+"act", "", hold)
	require.Equal(t, http.StatusForbidden, status)
	require.Zero(t, first(s.run("run", "other", "--", "true")), "nothing keeps it busy")

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	var at string // where it leads
	browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error { at = r.URL.String(); return nil }
	body, status := ask(browser, http.MethodGet, printed, "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "web-1")
	require.NotContains(t, at, "token")
	// another user serves another port of this host, and the operator visits it
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = r.Write(w) }))
	defer other.Close()
	body, _ = ask(browser, http.MethodGet, other.URL+"/onerun", "", "")
	require.NotContains(t, body, "Cookie")
	body, status = ask(browser, http.MethodGet, at, "", "")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, printed)
	_, status = ask(browser, http.MethodPost, at+"act", "", hold)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 75, first(s.run("run", "other", "--", "true")))
	_, status = ask(browser, http.MethodGet, at, "evil.example", "")
	require.Equal(t, http.StatusForbidden, status, "a browser sends the cookie to no other name")
	e.signal(syscall.SIGTERM)
	require.Zero(t, e.wait())
}

func TestOperate_onEachBackend(t *testing.T) {
	s := newSite(t)
	for _, backend := range []string{"single", "reentrant"} {
		key := "key of " + backend
		flags := []string{"--backend=" + backend, "--namespace=shop"}
		s.start(append(flags, "run", "--ttl=9s", key, "--", "sh", "-c", "echo >"+backend+"; exec sleep 100")...)
		s.written(backend)
		_, out, _ := s.run(append(flags, "ls")...)
		require.Contains(t, out, key)
		code, out, _ := s.run(append(flags, "break", key)...)
		require.Zero(t, code)
		require.Contains(t, out, "broken: "+key)
		code, _, errs := s.run("--backend="+backend, "show", "shop:"+key)
		require.Zero(t, code, errs)
	}
	code, _, errs := s.run("--redis=redis://127.0.0.1:1", "show", "key")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "refused")
}
