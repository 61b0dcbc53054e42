package web_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
)

// No request makes the page read more than a form of its own has, or write a file.
func TestRequests_areBounded(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := newSite(t, web.WithActions(alice))
	s.hold("report")
	var files bytes.Buffer
	parts := multipart.NewWriter(&files)
	file, err := parts.CreateFormFile("text", "large")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 40<<20)) // more than net/http keeps in memory
	require.NoError(t, err)
	require.NoError(t, parts.Close())
	form := []byte("what=hold&k=other&for=1h&reason=" + strings.Repeat("x", 1<<20))

	for _, path := range []string{"/", "/key?k=report", "/processes", "/jobs", "/job?name=x", "/log", "/confirm?what=forget&k=report", "/find", "/act", "/style.css"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for kind, body := range map[string][]byte{
				parts.FormDataContentType():         files.Bytes(),
				"application/x-www-form-urlencoded": form,
			} {
				r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Content-Type", kind)
				r.Header.Set("Sec-Fetch-Site", "same-origin")
				text, status := s.ask(r)
				isForm := path == "/find" || path == "/act"
				switch {
				case isForm && method == http.MethodPost && strings.HasPrefix(kind, "application/"):
					require.Equal(t, http.StatusRequestEntityTooLarge, status, "%s %s: %s", method, path, text)
				case isForm && method == http.MethodPost: // a form without fields
				case isForm == (method == http.MethodPost):
					require.Equal(t, http.StatusOK, status, "%s %s: %s", method, path, text)
				default:
					require.Equal(t, http.StatusMethodNotAllowed, status, "%s %s: %s", method, path, text)
				}
			}
		}
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.Contains(t, s.see("/key?k=other"), "Nobody holds this key")
}

// ask sends a request without following where it leads. It returns what the server answers before
// the body was sent, if it does.
func (s *site) ask(r *http.Request) (string, int) {
	s.Helper()
	w := httptest.NewRecorder()
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/ops/onerun")
	r.Host = "127.0.0.1"
	s.page.ServeHTTP(w, r)
	return w.Body.String(), w.Code
}

// Another site cannot use the page: neither by a form of its own, nor by a name of its own that it
// points at the page's address.
func TestRequests_ofOtherSitesAreRefused(t *testing.T) {
	s := newSite(t, web.WithActions(alice), web.WithHosts("ops.example", "::1"))
	send := func(path, host, origin string) int {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(url.Values{"text": {"report"}, "what": {"hold"}, "k": {"report"}, "for": {"1h"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host = host
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{"/find", "/act"} {
		require.Equal(t, http.StatusForbidden, send(path, "ops.example", "https://evil.example"))
		require.Equal(t, http.StatusMisdirectedRequest, send(path, "evil.example", "http://evil.example"))
		require.Equal(t, http.StatusMisdirectedRequest, send(path, "evil.example:80", "http://evil.example:80"))
		require.Equal(t, http.StatusMisdirectedRequest, send(path, "", "null"))
	}
	require.Contains(t, s.see("/key?k=report"), "Nobody holds this key")
	require.Equal(t, http.StatusSeeOther, send("/find", "OPS.example:7380", "http://OPS.example:7380"))
	require.Equal(t, http.StatusSeeOther, send("/find", "[::1]:7380", "http://[::1]:7380"))
	require.Equal(t, http.StatusSeeOther, send("/act", "ops.example", "http://ops.example"))
}

func TestNew_refusesHostsThatCannotWork(t *testing.T) {
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	i, err := inspect.New(g)
	require.NoError(t, err)
	var setting *guard.SettingError
	_, err = web.New(i, web.WithActions(alice))
	require.ErrorAs(t, err, &setting)
	require.Equal(t, "WithHosts", setting.Setting)
	for _, bad := range []string{"", "ops.example:80", "[::1]", "http://ops.example", "*", "*.example", "a@b"} {
		_, err = web.New(i, web.WithHosts(bad))
		require.ErrorAs(t, err, &setting, bad)
		require.Equal(t, "WithHosts", setting.Setting)
	}
	_, err = web.New(i, nil)
	require.ErrorAs(t, err, &setting)
	require.Equal(t, "Option", setting.Setting)
}

// A prefix without a slash leads to the page, however deep it is.
func TestPrefix_withoutASlashLeadsToThePage(t *testing.T) {
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	i, err := inspect.New(g)
	require.NoError(t, err)
	page, err := web.New(i)
	require.NoError(t, err)
	for _, prefix := range []string{"/onerun", "/ops/onerun", "/a/b/c"} {
		w := httptest.NewRecorder()
		http.StripPrefix(prefix, page).ServeHTTP(w, httptest.NewRequest(http.MethodGet, prefix+"?x=1", nil))
		require.Equal(t, http.StatusMovedPermanently, w.Code)
		at, err := url.Parse("http://ops.example" + prefix)
		require.NoError(t, err)
		to, err := at.Parse(w.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, prefix+"/", to.Path)
		for _, rest := range []string{"//jobs", "/./jobs", "/x/../jobs", "//", "/..//evil.example", "/%2e%2e/jobs", "/jobs/", "/%2f%2fevil.example"} {
			w := httptest.NewRecorder()
			http.StripPrefix(prefix, page).ServeHTTP(w, httptest.NewRequest(http.MethodGet, prefix+rest, nil))
			require.Equal(t, http.StatusNotFound, w.Code, rest)
			require.Empty(t, w.Header().Get("Location"), "it would lose the prefix")
		}
	}
}
