package guardhttp_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// formParsers are ways in which code in front of the middleware reads a form.
var formParsers = map[string]func(*http.Request){
	"PostFormValue": func(r *http.Request) { _ = r.PostFormValue("csrf") },
	"ParseForm":     func(r *http.Request) { _ = r.ParseForm() },
	// files go to the disk
	"ParseMultipartForm": func(r *http.Request) { _ = r.ParseMultipartForm(8) },
}

// parsedInFront calls parse before the middleware.
func parsedInFront(parse func(*http.Request)) func(func(http.Handler) http.Handler, http.Handler) http.Handler {
	return func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
		inner := idempotent(h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			parse(r)
			inner.ServeHTTP(w, r)
		})
	}
}

// payment answers with the amount of the form.
func payment(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(1 << 20) // an error says that it is another form, which is parsed
	_, _ = io.WriteString(w, r.PostFormValue("amount"))
}

// The bodies of parsed forms are empty. The middleware must not take two such forms for the same
// one.
func TestForm_parsedInFrontHasAFingerprint(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	urlencoded := func(amount string) (string, contentEdit) {
		return "csrf=t&amount=" + amount, contentHeader("Content-Type", "application/x-www-form-urlencoded")
	}
	fields := func(amount string) (string, contentEdit) {
		return upload(t, rand.Text(), formPart{name: "csrf", content: "t"}, formPart{name: "amount", content: amount})
	}
	file := func(name, kind string) func(string) (string, contentEdit) {
		return func(content string) (string, contentEdit) {
			return upload(t, rand.Text(), formPart{"file", name, kind, content + " of some length"})
		}
	}
	fileNamed := func(name string) (string, contentEdit) { return file(name, "text/plain")("x") }
	fileTyped := func(kind string) (string, contentEdit) { return file("f", kind)("x") }
	for print, opts := range map[string][]guardhttp.Option{
		"default": nil, "FingerprintMultipart": {guardhttp.WithFingerprint(guardhttp.FingerprintMultipart)},
	} {
		for name, parse := range formParsers {
			site := store.site(t, contentSetup{handler: payment, opts: opts, mount: parsedInFront(parse)})
			for kind, form := range map[string]func(string) (string, contentEdit){
				"urlencoded": urlencoded, "multipart": fields, "a file": file("f", "text/plain"), "its name": fileNamed, "its type": fileTyped,
			} {
				if name == "ParseForm" && kind != "urlencoded" && print == "default" {
					continue // it is not parsed, and another boundary makes it another request
				}
				t.Run(print+", "+name+", "+kind, func(t *testing.T) {
					key := rand.Text()
					body, header := form("1")
					first := site.post(t, key, body, header)
					require.Equal(t, http.StatusOK, first.status, first.body)
					body, header = form("1")
					site.post(t, key, body, header).requireReplayOf(t, first)
					body, header = form("100")
					requireProblem(t, site.post(t, key, body, header), http.StatusUnprocessableEntity, idempotency.Mismatch)
				})
			}
		}
	}
}

// A KeyFunc that parses the form itself does not change the fingerprint: the body is there.
func TestForm_parsedByTheKeyFuncIsComparedByItsBytes(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	plain := store.site(t, contentSetup{handler: payment, key: guardhttp.FromHeader("Idempotency-Key")})
	parsing := store.site(t, contentSetup{handler: payment, key: func(r *http.Request) (string, error) {
		_ = r.PostFormValue("amount")
		return r.Header.Get("Idempotency-Key"), nil
	}})
	for name, form := range map[string]func() (string, contentEdit){
		"urlencoded": func() (string, contentEdit) {
			return "amount=1", contentHeader("Content-Type", "application/x-www-form-urlencoded")
		},
		"multipart": func() (string, contentEdit) { return upload(t, "b", formPart{name: "amount", content: "1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			key := rand.Text()
			body, header := form()
			first := plain.post(t, key, body, header)
			require.Equal(t, "1", first.body)
			parsing.post(t, key, body, header).requireReplayOf(t, first)
		})
	}
}

func TestFromForm_findsTheFieldOfAFormThatWasParsedInFront(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, parse := range formParsers {
		site := store.site(t, contentSetup{handler: payment, key: guardhttp.FromForm("order"), mount: parsedInFront(parse)})
		t.Run(name, func(t *testing.T) {
			order := rand.Text()
			urlencoded := contentHeader("Content-Type", "application/x-www-form-urlencoded")
			multipart, header := upload(t, "b", formPart{name: "amount", content: "1"}, formPart{name: "order", content: order + "m"})
			for body, kind := range map[string]contentEdit{"amount=1&order=" + order: urlencoded, multipart: header} {
				first := site.send(t, http.MethodPost, "/things?order=of-the-query", body, kind)
				require.Equal(t, "1", first.body)
				site.send(t, http.MethodPost, "/things?order=of-the-query", body, kind).requireReplayOf(t, first)
			}
			requireProblem(t, site.send(t, http.MethodPost, "/things", "amount=1&order=a&order=b", urlencoded), http.StatusBadRequest, idempotency.KeyInvalid)
			requireProblem(t, site.send(t, http.MethodPost, "/things?order=of-the-query", "amount=1", urlencoded), http.StatusBadRequest, idempotency.KeyMissing)
		})
	}
}
