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

// A body is a request's body that can be read several times. It is read from the connection, whole
// and up to a bound, when code first reads it.
type body struct {
	source io.ReadCloser
	max    int64
	length int64 // what the request says, or -1

	loaded bool
	bytes  []byte
	err    error // the error that ended reading; nil at the end of the body
	reader bytes.Reader
}

// take takes the body of a request.
func (b *body) take(r *http.Request, most int64) {
	b.source, b.max, b.length = r.Body, most, r.ContentLength
}

// load returns the whole body. The error is a *http.MaxBytesError if it is too large, and what
// reading it returned if it broke off.
func (b *body) load() ([]byte, error) {
	if b.loaded {
		return b.bytes, b.err
	}
	b.loaded = true
	if b.length > b.max {
		b.err = &http.MaxBytesError{Limit: b.max}
		return nil, b.err
	}
	var all bytes.Buffer
	if b.length > 0 {
		// and more as it comes: the length may be a lie
		all.Grow(int(min(b.length, 64<<10)) + bytes.MinRead)
	}
	// http.MaxBytesReader would lose the byte behind the bound.
	_, b.err = all.ReadFrom(io.LimitReader(b.source, b.max+1))
	b.bytes = all.Bytes()
	if b.err == nil && int64(len(b.bytes)) > b.max {
		b.err = &http.MaxBytesError{Limit: b.max}
	}
	b.reader.Reset(b.bytes)
	return b.bytes, b.err
}

// Read reads from the loaded body.
func (b *body) Read(p []byte) (int, error) {
	if !b.loaded {
		_, _ = b.load() // the error comes at the end of what there is
	}
	n, err := b.reader.Read(p)
	if errors.Is(err, io.EOF) && b.err != nil {
		err = b.err
	}
	return n, err
}

// Close does nothing: net/http closes the connection's body, and the handler may read what was
// read already.
func (b *body) Close() error { return nil }

// rewind makes the next reader start at the beginning.
func (b *body) rewind() {
	if b.loaded {
		b.reader.Reset(b.bytes)
	}
}

// rewind gives a request the body that it had, from its beginning, after a function that may have
// read or replaced it.
func rewind(r *http.Request, had io.ReadCloser) {
	if b, ok := had.(*body); ok {
		b.rewind()
		r.Body = b
	}
}

// attach sets in r the body that the handler reads: what was loaded, or the original body if
// nothing was.
func (b *body) attach(r *http.Request) {
	switch {
	case !b.loaded:
		r.Body = b.source
	case b.err != nil: // shadow mode: what has been read, and what comes after it
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(b.bytes), b.source), b.source}
	default:
		b.reader.Reset(b.bytes)
		r.Body, r.ContentLength = struct {
			io.Reader
			io.Closer
		}{&b.reader, b.source}, int64(len(b.bytes))
	}
}

// wholeBody returns the body of a request that a KeyFunc looks at, and leaves it there to be read
// again.
func wholeBody(r *http.Request) ([]byte, error) {
	b, ok := r.Body.(*body)
	if !ok { // outside of the middleware
		if r.Body == nil {
			return nil, nil
		}
		b = new(body)
		b.take(r, defaultMaxBody)
		all, err := b.load()
		b.attach(r)
		return all, err
	}
	all, err := b.load()
	b.reader.Reset(all)
	return all, err
}

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

// A connectionBody is a body that the handler reads from the connection. net/http sets the trailers
// of the request itself, of which to is a copy.
type connectionBody struct {
	io.ReadCloser
	q  *exchange
	to *http.Request
}

func (b *connectionBody) Read(p []byte) (int, error) {
	b.q.client.watch()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.to.Trailer = b.q.r.Trailer
	}
	return n, err
}
