package guardhttp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A fingerprint returns what of a request must be the same in a retry, see WithFingerprint.
type fingerprint func(r *http.Request, body []byte) ([]byte, error)

// of hashes what makes a request the same as another: by default the query and the body.
func (f fingerprint) of(r *http.Request, body []byte) ([]byte, error) {
	h := sha256.New()
	if f == nil {
		query := keys.Hash(r.URL.RawQuery)
		h.Write(query[:])
		f = content
	}
	what, err := f(r, body)
	if err != nil {
		return nil, err
	}
	h.Write(what)
	return h.Sum(nil), nil
}

// identity returns the key under which the store knows a request.
func (m *middleware) identity(scope, key, host string, r *http.Request) string {
	return m.Stored(scope, key, "path", host, r.Method, requestPath(r), r.URL.EscapedPath())
}

// requestPath returns the path that the client sent, which may have been cut since
// (http.StripPrefix).
func requestPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return ""
}

// content returns what the fingerprint covers of a body: its bytes, or a hash of the parsed form.
func content(r *http.Request, body []byte) ([]byte, error) {
	if !parsed(r, body) {
		return body, nil
	}
	parts := []string{r.PostForm.Encode()}
	if form := r.MultipartForm; form != nil {
		parts = append(parts, url.Values(form.Value).Encode())
		for _, name := range slices.Sorted(maps.Keys(form.File)) {
			for _, file := range form.File[name] {
				sum, err := fileHash(name, file)
				if err != nil {
					return nil, err
				}
				parts = append(parts, string(sum[:]))
			}
		}
	}
	sum := keys.Hash(parts...)
	return sum[:], nil
}

// parsed reports whether code in front of the middleware has parsed the form, so that its content
// is no longer in the body. http.Request.PostFormValue does that, for example. A body that was put
// back counts as it is.
func parsed(r *http.Request, body []byte) bool {
	form := r.MultipartForm
	if form == nil {
		return len(r.PostForm) > 0 && len(body) == 0
	}
	if len(r.PostForm)+len(form.Value)+len(form.File) == 0 {
		return false // http.Request.MultipartReader has set it
	}
	_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // none on an error
	return !hasEnd(body, parameters)
}

// hasEnd reports whether a multipart body has its last boundary. parameters are those of its
// Content-Type.
func hasEnd(body []byte, parameters map[string]string) bool {
	return bytes.Contains(body, []byte("--"+parameters["boundary"]+"--"))
}

// fileHash hashes a file of a parsed form, which may be larger than the memory should hold.
func fileHash(field string, file *multipart.FileHeader) (sum [sha256.Size]byte, err error) {
	from, err := file.Open()
	if err != nil {
		return sum, err
	}
	defer from.Close()
	h := sha256.New()
	if _, err := io.Copy(h, from); err != nil {
		return sum, err
	}
	return keys.Hash(field, file.Filename, file.Header.Get("Content-Type"), file.Header.Get("Content-Transfer-Encoding"), string(h.Sum(nil))), nil
}

// FingerprintMultipart is a function for WithFingerprint, for uploads. Clients separate the parts
// of a form by a boundary that they make up for each request, so the bytes of a retry differ. It
// compares the query and, of each part, the name, the file name, the content type and the content.
// Parts of different names may come in another order. A request that is no multipart form, or whose
// form code in front has parsed, is compared as it is by default. A form that cannot be read is
// refused with status 400.
func FingerprintMultipart(r *http.Request, body []byte) ([]byte, error) {
	kind, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // "" on an error
	if kind != "multipart/form-data" || parsed(r, body) {
		query := keys.Hash(r.URL.RawQuery)
		what, err := content(r, body)
		return append(query[:], what...), err
	}
	if !hasEnd(body, parameters) {
		return nil, errors.New("the form has no end")
	}
	type part struct{ name, hash string }
	var parts []part
	for form := multipart.NewReader(bytes.NewReader(body), parameters["boundary"]); ; {
		p, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the form cannot be read: %w", err)
		}
		content, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("the form cannot be read: %w", err)
		}
		sum := keys.Hash(p.FormName(), p.FileName(), p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), string(content))
		parts = append(parts, part{p.FormName(), hex.EncodeToString(sum[:])})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	all := []string{r.URL.RawQuery}
	for _, p := range parts {
		all = append(all, p.hash)
	}
	sum := keys.Hash(all...)
	return sum[:], nil
}
