package guardhttp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A streamsStep is a call that a handler makes. It returns the result as a text.
type streamsStep struct {
	name string
	do   func(w http.ResponseWriter, r *http.Request) string
	// the properties that determine what can be compared
	bytes   int // that it writes
	copies  bool
	flushes bool
	hijacks bool
}

// A streamsPlay is a handler, made of steps.
type streamsPlay []streamsStep

func (p streamsPlay) String() string {
	var names []string
	for _, s := range p {
		names = append(names, s.name)
	}
	return strings.Join(names, "; ")
}

func (p streamsPlay) any(is func(streamsStep) bool) bool { return slices.ContainsFunc(p, is) }

// streamsFiles are files of the sizes that steps copy.
type streamsFiles struct {
	dir string
	mu  *sync.Mutex // tests share them
}

func streamsMakeFiles(t *testing.T) streamsFiles { return streamsFiles{t.TempDir(), new(sync.Mutex)} }

func (f streamsFiles) open(size int) *os.File {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := filepath.Join(f.dir, strconv.Itoa(size))
	if _, err := os.Stat(name); err != nil {
		streamsMust(os.WriteFile(name, streamsBytes(size), 0o600))
	}
	file, err := os.Open(name)
	streamsMust(err)
	return file
}

// streamsBytes are size bytes that look like text.
func streamsBytes(size int) []byte {
	return bytes.Repeat([]byte("<p>0123456789 abcdefghijklmnopqrstuvwxyz</p>\n"), size/40+1)[:size]
}

func streamsHeader(name string, values ...string) streamsStep {
	return streamsStep{name: fmt.Sprintf("header %s %q", name, values), do: func(w http.ResponseWriter, _ *http.Request) string {
		w.Header()[name] = values
		return ""
	}}
}

func streamsStatus(status int) streamsStep {
	return streamsStep{name: fmt.Sprint("status ", status), do: func(w http.ResponseWriter, _ *http.Request) string {
		w.WriteHeader(status)
		return ""
	}}
}

// streamsSaid returns the results of a write as a text. It removes the address that the
// connection's own ReadFrom puts before an error.
func streamsSaid(n any, err error) string {
	return fmt.Sprint(n, " ", streamsReadFrom.ReplaceAllString(fmt.Sprint(err), ""))
}

var streamsReadFrom = regexp.MustCompile(`^readfrom tcp \S+: `)

func streamsWrite(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("write ", size), bytes: size, do: func(w http.ResponseWriter, _ *http.Request) string {
		return streamsSaid(w.Write(streamsBytes(size)))
	}}
}

func streamsWriteString(size int) streamsStep {
	text := string(streamsBytes(size))
	return streamsStep{name: fmt.Sprint("string ", size), bytes: size, do: func(w http.ResponseWriter, _ *http.Request) string {
		return streamsSaid(io.WriteString(w, text))
	}}
}

// streamsText writes a text in small parts.
func streamsText(text string) streamsStep {
	return streamsStep{name: fmt.Sprintf("text %.20q", text), bytes: len(text), do: func(w http.ResponseWriter, _ *http.Request) (said string) {
		for part := range slices.Chunk([]byte(text), 100) {
			said += streamsSaid(w.Write(part))
		}
		return said
	}}
}

func streamsCopyReader(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("copy bytes.Reader ", size), bytes: size, do: func(w http.ResponseWriter, _ *http.Request) string {
		return streamsSaid(io.Copy(w, bytes.NewReader(streamsBytes(size))))
	}}
}

func (f streamsFiles) copyFile(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("copy file ", size), bytes: size, copies: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		file := f.open(size)
		defer file.Close()
		return streamsSaid(io.Copy(w, file))
	}}
}

func (f streamsFiles) copyPart(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("copy of a file ", size), bytes: size, copies: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		file := f.open(size + 100)
		defer file.Close()
		return streamsSaid(io.CopyN(w, file, int64(size)))
	}}
}

func (f streamsFiles) copyFailing(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("copy that fails ", size), bytes: size, copies: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		return streamsSaid(io.Copy(w, streamsFailing{bytes.NewReader(streamsBytes(size)), errors.New("broken")}))
	}}
}

func (f streamsFiles) readFrom(size int) streamsStep {
	return streamsStep{name: fmt.Sprint("ReadFrom ", size), bytes: size, copies: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		if rf, ok := w.(io.ReaderFrom); ok {
			return streamsSaid(rf.ReadFrom(io.LimitReader(bytes.NewReader(streamsBytes(size)), 1<<30)))
		}
		return streamsSaid(w.Write(streamsBytes(size)))
	}}
}

var (
	streamsFlush = streamsStep{name: "Flush", flushes: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		return ""
	}}
	streamsControlFlush = streamsStep{name: "controller.Flush", flushes: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		return fmt.Sprint(http.NewResponseController(w).Flush())
	}}
	streamsDeadlines = streamsStep{name: "deadlines", do: func(w http.ResponseWriter, _ *http.Request) string {
		c := http.NewResponseController(w)
		return fmt.Sprint(c.SetWriteDeadline(time.Now().Add(time.Hour)), c.SetReadDeadline(time.Now().Add(time.Hour)))
	}}
	streamsDuplex = streamsStep{name: "full duplex", do: func(w http.ResponseWriter, _ *http.Request) string {
		return fmt.Sprint(http.NewResponseController(w).EnableFullDuplex())
	}}
	streamsRead = streamsStep{name: "read", do: func(_ http.ResponseWriter, r *http.Request) string {
		return streamsSaid(io.ReadAll(r.Body))
	}}
	streamsPush = streamsStep{name: "push", do: func(w http.ResponseWriter, _ *http.Request) string {
		if p, ok := w.(http.Pusher); ok {
			return fmt.Sprint(p.Push("/other", nil))
		}
		return "no Pusher"
	}}
	streamsHijack = streamsStep{name: "hijack", hijacks: true, do: func(w http.ResponseWriter, _ *http.Request) string {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhijacked")
		_ = rw.Flush()
		n, err := w.Write([]byte("after"))
		return streamsSaid(n, err)
	}}
)
