package guardhttp_test

import (
	"bytes"
	"crypto/rand"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A formPart is a part of an upload.
type formPart struct{ name, file, kind, content string }

// upload writes a form as a client does, with a boundary of its own.
func upload(t *testing.T, boundary string, parts ...formPart) (body string, kind contentEdit) {
	t.Helper()
	var all bytes.Buffer
	w := multipart.NewWriter(&all)
	require.NoError(t, w.SetBoundary(boundary))
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + p.name + `"; filename="` + p.file + `"`}}
		if p.kind != "" {
			h.Set("Content-Type", p.kind)
		}
		part, err := w.CreatePart(h)
		require.NoError(t, err)
		_, err = part.Write([]byte(p.content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return all.String(), contentHeader("Content-Type", w.FormDataContentType())
}

func TestFingerprintMultipart(t *testing.T) {
	t.Parallel()
	name, file := formPart{"name", "", "", "alice"}, formPart{"file", "a.png", "image/png", "bytes"}
	with := func(p formPart, change func(*formPart)) formPart { change(&p); return p }
	site := contentMemory(t).site(t, contentSetup{handler: contentEcho, opts: []guardhttp.Option{guardhttp.WithFingerprint(guardhttp.FingerprintMultipart)}})
	for what, c := range map[string]struct {
		parts []formPart
		query string
		same  bool
	}{
		"the same, another boundary": {parts: []formPart{name, file}, same: true},
		"another order":              {parts: []formPart{file, name}, same: true},
		"another content":            {parts: []formPart{name, with(file, func(p *formPart) { p.content = "bytez" })}},
		"another file name":          {parts: []formPart{name, with(file, func(p *formPart) { p.file = "b.png" })}},
		"another type":               {parts: []formPart{name, with(file, func(p *formPart) { p.kind = "image/gif" })}},
		"another name":               {parts: []formPart{name, with(file, func(p *formPart) { p.name = "files" })}},
		"a part more":                {parts: []formPart{name, file, file}},
		"a part less":                {parts: []formPart{name}},
		"another query":              {parts: []formPart{name, file}, query: "?q=1"},
	} {
		t.Run(what, func(t *testing.T) {
			key := contentHeader("Idempotency-Key", rand.Text())
			body, kind := upload(t, "first", name, file)
			first := site.send(t, http.MethodPost, "/upload", body, key, kind)
			require.Equal(t, http.StatusOK, first.status)
			body, kind = upload(t, "second", c.parts...)
			again := site.send(t, http.MethodPost, "/upload"+c.query, body, key, kind)
			if c.same {
				again.requireReplayOf(t, first)
			} else {
				requireProblem(t, again, http.StatusUnprocessableEntity, idempotency.Mismatch)
			}
		})
	}
	t.Run("the order of parts of one name counts", func(t *testing.T) {
		key := contentHeader("Idempotency-Key", rand.Text())
		one, two := formPart{"n", "", "", "1"}, formPart{"n", "", "", "2"}
		body, kind := upload(t, "b", one, two)
		site.send(t, http.MethodPost, "/upload", body, key, kind)
		body, kind = upload(t, "b", two, one)
		requireProblem(t, site.send(t, http.MethodPost, "/upload", body, key, kind), http.StatusUnprocessableEntity, idempotency.Mismatch)
	})
	t.Run("what is no form", func(t *testing.T) {
		key := rand.Text()
		first := site.post(t, key, "text")
		site.post(t, key, "text").requireReplayOf(t, first)
		requireProblem(t, site.post(t, key, "other"), http.StatusUnprocessableEntity, idempotency.Mismatch)
	})
	t.Run("what is no form has the default fingerprint", func(t *testing.T) {
		h, _ := counted(nil)
		g := lifeGuard(t, memory.New())
		before := lifeServe(t, g, h)
		now := lifeServe(t, g, h, guardhttp.WithFingerprint(guardhttp.FingerprintMultipart))
		for _, kind := range []string{"application/json", "application/x-www-form-urlencoded"} {
			first := before.post(t, kind[12:], "{}", "Content-Type", kind)
			require.False(t, first.replayed())
			requireReplay(t, now.post(t, kind[12:], "{}", "Content-Type", kind), http.StatusCreated, first.body)
		}
	})
	t.Run("a broken form", func(t *testing.T) {
		body, kind := upload(t, "b", name, file)
		requireProblem(t, site.post(t, rand.Text(), body[:len(body)-20], kind), http.StatusBadRequest, idempotency.BodyInvalid)
	})
}
