package guardhttp

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

var errNoForm = errors.New("the body is no form")

// formValues returns the values of a field of the form in the body.
func formValues(r *http.Request, field string) ([]string, error) {
	all, err := wholeBody(r)
	if err != nil {
		return nil, err
	}
	if parsed(r, all) {
		values := r.PostForm[field]
		if len(values) == 0 && r.MultipartForm != nil {
			values = r.MultipartForm.Value[field]
		}
		return values, nil
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, errNoForm
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(all))
		return values[field], err
	case "multipart/form-data":
		form, err := multipart.NewReader(bytes.NewReader(all), parameters["boundary"]).ReadForm(int64(len(all)))
		if err != nil {
			return nil, err
		}
		defer form.RemoveAll() //nolint:errcheck // all of it was in memory
		return form.Value[field], nil
	}
	return nil, errNoForm
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
