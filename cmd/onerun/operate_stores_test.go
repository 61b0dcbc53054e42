package main_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// onStores calls f on each kind of store that is not Redis, of which all on SQL are alike.
func onStores(t *testing.T, f func(s *postgresSite)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		s := newPostgresSite(t)
		s.ok("migrate")
		f(s)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		f(&postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://" + strings.TrimPrefix(etcdtest.Start(t).Endpoints()[0], "http://")})
	})
}

// The commands about jobs.
func TestStore_jobs(t *testing.T) { onStores(t, (*postgresSite).operatesJobs) }

func (s *postgresSite) operatesJobs() {
	t := s.t
	t.Helper()
	servers, err := connect.Open(connect.Config{URLs: []string{s.url}})
	require.NoError(t, err)
	g, err := guard.New(servers.Locker, guard.WithoutNamespace())
	require.NoError(t, err)
	c := cron.New()
	all, err := guardcron.New(g, c)
	require.NoError(t, err)
	_, err = all.AddFunc("report", "0 3 * * *", func(context.Context) error { return nil })
	require.NoError(t, err)
	c.Start()
	s.eventually(func() bool { return strings.Contains(s.ok("jobs"), "report") }, "it is not announced")
	s.ok("pause", "report")
	require.Regexp(t, `report +0 3 \* \* \* +\S+ +paused`, s.ok("jobs"))
	s.ok("resume", "report")
	s.ok("trigger", "report")
	s.eventually(func() bool { return strings.Contains(s.ok("records", "report"), "by hand") }, "it is not triggered")
	<-c.Stop().Done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, all.Close(ctx))
	require.NoError(t, g.Close(ctx))
	require.NoError(t, servers.Close())
}

// The page shows what a store keeps, and its operator can change it.
func TestStore_page(t *testing.T) { onStores(t, (*postgresSite).operatesByPage) }

func (s *postgresSite) operatesByPage() {
	t := s.t
	t.Helper()
	holder := execute(t, s.command("run", "--ttl=9s", "--label=web-1", "report", "--", "sh", "-c", "echo >began; exec sleep 100"))
	s.written("began")
	page := execute(t, s.command("ui", "--listen=127.0.0.1:0"))
	var printed string
	s.eventually(func() bool {
		printed = regexp.MustCompile(`http://\S+`).FindString(page.errs.String())
		return printed != ""
	}, "it says where it serves")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var at string // where it leads
	browser := &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if at == "" {
			at = r.URL.String()
		}
		return nil
	}}
	keys := body(t, browser, http.MethodGet, printed, "")
	require.Contains(t, keys, "web-1")
	scheme, host, _ := strings.Cut(s.url, "://")
	if scheme != "etcd" {
		_, host, _ = strings.Cut(s.url, "host=")
		scheme = "postgres"
	}
	require.Contains(t, keys, scheme+" "+host, "which server it shows")
	key := body(t, browser, http.MethodGet, at+"key?k=report", "")
	require.Contains(t, key, "web-1")
	body(t, browser, http.MethodPost, at+"act", "what=hold&k=other&for=1h")
	require.Equal(t, 75, first(s.run("run", "other", "--", "true")))
	s.ok("run", "--once=1h", "nightly", "--", "true")
	require.Contains(t, body(t, browser, http.MethodGet, at+"key?k=nightly", ""), "is done")
	body(t, browser, http.MethodPost, at+"act", "what=forget&k=nightly")
	require.Contains(t, s.ok("show", "nightly"), "nightly is free")
	id := regexp.MustCompile(`id=([\w-]+)`).FindStringSubmatch(key)
	require.NotEmpty(t, id, key)
	body(t, browser, http.MethodPost, at+"act", "what=break&k=report&id="+id[1])
	require.Equal(t, 124, holder.wait())
	page.signal(syscall.SIGTERM)
	require.Zero(t, page.wait())
}

// body returns what a page answers.
func body(t *testing.T, client *http.Client, method, url, form string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(form))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, string(text))
	return string(text)
}
