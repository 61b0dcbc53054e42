package guardhttp_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// Two texts of which one would be taken for a retry of the other.
func TestKeys_noTwoTextsAreOneKey(t *testing.T) {
	t.Parallel()
	post := func(kind, body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		return r
	}
	inHeader := func(text string) *http.Request {
		r := post("text/plain", "")
		r.Header.Set("Idempotency-Key", text)
		return r
	}
	inJSON := func(text string) *http.Request { return post("application/json", `{"order":"`+text+`"}`) }
	for name, c := range map[string]struct {
		texts   []string
		key     guardhttp.KeyFunc
		request func(text string) *http.Request
	}{
		"FromJSON":       {adaptertest.JSONStrings(), guardhttp.FromJSON("order"), inJSON},
		"Join":           {adaptertest.JSONStrings(), guardhttp.Join(guardhttp.FromJSON("order"), guardhttp.FromJSON("order")), inJSON},
		"FromHeader":     {adaptertest.Texts(), guardhttp.FromHeader("Idempotency-Key"), inHeader},
		"IdempotencyKey": {adaptertest.Texts(), guardhttp.IdempotencyKey, inHeader},
		"FromForm": {adaptertest.Texts(), guardhttp.FromForm("order"), func(text string) *http.Request {
			return post("application/x-www-form-urlencoded", "order="+url.QueryEscape(text))
		}},
		"FromForm, multipart": {adaptertest.Texts(), guardhttp.FromForm("order"), func(text string) *http.Request {
			var body bytes.Buffer
			w := multipart.NewWriter(&body)
			require.NoError(t, w.WriteField("order", text))
			require.NoError(t, w.Close())
			return post(w.FormDataContentType(), body.String())
		}},
		"FromPathValue": {adaptertest.Texts(), guardhttp.FromPathValue("order"), func(text string) *http.Request {
			var matched *http.Request
			mux := http.NewServeMux()
			mux.HandleFunc("POST /orders/{order}", func(_ http.ResponseWriter, r *http.Request) { matched = r })
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/"+url.PathEscape(text), nil))
			return matched
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Distinct(t, c.texts, func(text string) (string, error) { return c.key(c.request(text)) })
		})
	}
}
