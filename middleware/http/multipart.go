package guardhttp

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

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
		return append(query[:], what...), err // which has the default fingerprint
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
