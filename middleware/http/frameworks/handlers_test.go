package frameworks_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// A shop is the application behind a framework: the work of its handlers, for any framework.
type shop struct {
	runs atomic.Int64
	got  chan bool // the client has what was flushed
	gone chan bool // the client has left
}

var errShop = errors.New("the handler has failed")

const (
	receipt     = `{"claim":1}`
	flushedPart = "0123456789abcdef"
	flushParts  = 640 // of 16 bytes: 10 KiB
)

// write answers in parts. The first part must leave at once.
func (s *shop) write(w http.ResponseWriter, first string, rest func()) {
	_, _ = io.WriteString(w, first)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-s.got:
	default:
		<-s.got
	}
	rest()
}

// ServeHTTP has the handlers of frameworks for net/http.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run := s.runs.Add(1)
	switch r.URL.Path {
	case "/created":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/claims/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	case "/error":
		// what an adapter for handlers that return errors does, inside of the middleware
		http.Error(w, errShop.Error(), http.StatusInternalServerError)
	case "/flush":
		w.Header().Set("Content-Type", "text/plain")
		s.write(w, flushedPart, func() { _, _ = io.WriteString(w, strings.Repeat(flushedPart, flushParts-1)) })
	case "/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		s.write(w, "data: 1\n\n", func() { _, _ = io.WriteString(w, "data: 2\n\n") })
	case "/upload":
		file, _, err := r.FormFile("file")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer file.Close()
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, file)
	case "/panic":
		if run == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	case "/gone":
		<-s.gone
		_, _ = io.WriteString(w, receipt)
	}
}

// paths are those of the shop.
var paths = []string{"/created", "/error", "/flush", "/stream", "/upload", "/panic", "/gone"}
