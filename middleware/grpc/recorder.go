package guardgrpc

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A recorder is the stream of a call as its handler sees it. It copies the metadata that the
// handler sets.
type recorder struct {
	inner    grpc.ServerTransportStream
	call     context.Context // the call's: when it has ended, the client has gone
	tolerant bool            // the handler does not learn that the client has gone
	hold     bool            // hold back what is set until the record is in the store
	without  []string        // metadata that is not recorded, see WithoutMetadata

	mu      sync.Mutex
	closed  bool
	sent    bool // the header was sent
	header  metadata.MD
	trailer metadata.MD
	// what is held back
	heldHeader, heldTrailer metadata.MD
}

// errEnded is what a goroutine of the handler gets that sets metadata after the handler has
// returned.
var errEnded = errors.New("guardgrpc: the handler has returned, and its reply has ended with it")

// Method implements grpc.ServerTransportStream.
func (r *recorder) Method() string { return r.inner.Method() }

// SetHeader implements grpc.ServerTransportStream.
func (r *recorder) SetHeader(md metadata.MD) error {
	return r.set(func(md metadata.MD) error {
		if r.hold && !r.sent {
			r.heldHeader = metadata.Join(r.heldHeader, md)
			return nil
		}
		return r.inner.SetHeader(md)
	}, md, &r.header)
}

// SendHeader implements grpc.ServerTransportStream. It cannot be held back: the client may wait
// for the header.
func (r *recorder) SendHeader(md metadata.MD) error {
	return r.set(func(md metadata.MD) error {
		err := r.inner.SendHeader(metadata.Join(r.heldHeader, md))
		r.heldHeader = nil
		r.sent = r.sent || err == nil || r.forgives()
		return err
	}, md, &r.header)
}

// SetTrailer implements grpc.ServerTransportStream.
func (r *recorder) SetTrailer(md metadata.MD) error {
	return r.set(func(md metadata.MD) error {
		if r.hold {
			r.heldTrailer = metadata.Join(r.heldTrailer, md)
			return nil
		}
		return r.inner.SetTrailer(md)
	}, md, &r.trailer)
}

// sendHeld sets what was held back.
func (r *recorder) sendHeld() {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The client may have gone.
	_ = r.inner.SetHeader(r.heldHeader)
	_ = r.inner.SetTrailer(r.heldTrailer)
	r.heldHeader, r.heldTrailer = nil, nil
}

// set sets metadata by next, and records it.
func (r *recorder) set(next func(metadata.MD) error, md metadata.MD, recorded *metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errEnded
	}
	late := r.sent && recorded == &r.header // the handler's mistake
	if err := next(md); err != nil && (late || !r.forgives()) {
		return err
	}
	*recorded = replayable(*recorded, md, r.without)
	return nil
}

// forgives reports whether to hide an error from the handler: the client has gone, and the retry
// gets what was recorded.
func (r *recorder) forgives() bool { return r.tolerant && r.call.Err() != nil }

// end ends the recording, and returns what was recorded.
func (r *recorder) end() (header, trailer metadata.MD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.header, r.trailer
}
