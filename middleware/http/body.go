package guardhttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
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
