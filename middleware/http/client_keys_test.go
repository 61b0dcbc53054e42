package guardhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// keyedServer notes the keys of its requests. It cuts the connection for the first requests.
type keyedServer struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string
	cuts int // how many requests are to be cut
}

func serveKeyed(t *testing.T) *keyedServer {
	t.Helper()
	s := &keyedServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		cut := s.cuts > 0
		s.cuts--
		s.mu.Unlock()
		if cut {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// cut has the next n requests cut, and forgets the keys of the earlier ones.
func (s *keyedServer) cut(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts, s.keys = n, nil
}

// seen returns the keys since the last cut.
func (s *keyedServer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

func keyedClient(t *testing.T, next http.RoundTripper, opts ...guardhttp.ClientOption) *http.Client {
	t.Helper()
	keys, err := guardhttp.ClientKeys(next, opts...)
	require.NoError(t, err)
	client := &http.Client{Transport: keys}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func sendKeyed(t *testing.T, client *http.Client, r *http.Request) error {
	t.Helper()
	response, err := client.Do(r)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	return err
}

func requestTo(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	return r
}

// A retrier asks again if there was no answer.
type retrier struct{ next http.RoundTripper }

func (r retrier) RoundTrip(request *http.Request) (response *http.Response, err error) {
	for range 3 {
		if response, err = r.next.RoundTrip(request); err == nil {
			break
		}
		request.Body, _ = request.GetBody()
	}
	return response, err
}

// However the attempts of a request come about, they have one key, and no other request has it.
func TestClientKeys_theAttemptsOfARequestHaveOneKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next http.RoundTripper
		cuts int
	}{
		// a request on a connection that was used before
		"net/http repeats it": {&http.Transport{}, 1},
		"a transport does":    {retrier{&http.Transport{DisableKeepAlives: true}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveKeyed(t)
			client := keyedClient(t, c.next)
			require.NoError(t, sendKeyed(t, client, requestTo(t, http.MethodPost, s.URL)))
			first := s.seen()
			s.cut(c.cuts)
			r := requestTo(t, http.MethodPost, s.URL)
			require.NoError(t, sendKeyed(t, client, r))
			keys := s.seen()
			require.Len(t, keys, c.cuts+1)
			for _, key := range keys {
				require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, key)
				require.Equal(t, keys[0], key)
			}
			require.NotEqual(t, first[0], keys[0])
			require.Empty(t, r.Header.Get("Idempotency-Key"), "the caller's request is as it was")
		})
	}
	t.Run("the caller does", func(t *testing.T) {
		t.Parallel()
		s := serveKeyed(t)
		s.cut(2)
		client := keyedClient(t, &http.Transport{DisableKeepAlives: true})
		ctx := idempotency.WithKey(t.Context(), `order "7"`)
		for range 3 {
			_ = sendKeyed(t, client, requestTo(t, http.MethodPost, s.URL).WithContext(ctx))
		}
		quoted := `"order \"7\""`
		require.Equal(t, []string{quoted, quoted, quoted}, s.seen())
		r := requestTo(t, http.MethodPost, s.URL)
		r.Header.Set("Idempotency-Key", quoted)
		key, err := guardhttp.IdempotencyKey(r)
		require.NoError(t, err)
		require.Equal(t, `order "7"`, key, "the server reads it as it was")
	})
}

func TestClientKeys_whichRequestsGetOne(t *testing.T) {
	t.Parallel()
	s := serveKeyed(t)
	client := keyedClient(t, nil)
	for method, want := range map[string]bool{http.MethodPost: true, http.MethodPatch: true, http.MethodPut: false, http.MethodDelete: false, http.MethodGet: false} {
		s.cut(0)
		require.NoError(t, sendKeyed(t, client, requestTo(t, method, s.URL)))
		require.Equal(t, want, s.seen()[0] != "", method)
	}
	s.cut(0)
	require.NoError(t, sendKeyed(t, keyedClient(t, nil, guardhttp.WithClientMethods(http.MethodPut)), requestTo(t, http.MethodPut, s.URL)))
	require.NotEmpty(t, s.seen()[0])

	s.cut(0)
	r := requestTo(t, http.MethodPost, s.URL)
	r.Header.Set("Idempotency-Key", "mine")
	require.NoError(t, sendKeyed(t, client, r))
	require.Equal(t, []string{"mine"}, s.seen())
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestClientKeys_refuseWhatCannotWork(t *testing.T) {
	t.Parallel()
	for setting, opt := range map[string]guardhttp.ClientOption{"WithClientMethods": guardhttp.WithClientMethods(), "Option": nil} {
		_, err := guardhttp.ClientKeys(nil, opt)
		var refused *guard.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
	}
	s := serveKeyed(t)
	for _, key := range []string{"", "a\nb", strings.Repeat("k", 256)} {
		body := &closing{Reader: strings.NewReader("{}")}
		r := requestTo(t, http.MethodPost, s.URL).WithContext(idempotency.WithKey(t.Context(), key))
		r.Body = body
		err := sendKeyed(t, keyedClient(t, nil), r)
		var bad *idempotency.KeyError
		require.ErrorAs(t, err, &bad)
		require.True(t, body.closed)
	}
	require.Empty(t, s.seen(), "nothing was sent")
}
