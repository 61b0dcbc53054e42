package guardhttp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// The parts of a record's form that the package idempotent has, and the sum of both packages.
const (
	fingerprintSize = idempotent.FingerprintSize
	maxOrigin       = idempotent.MaxOrigin
	maxHeaderNames  = idempotent.MaxFieldNames
	maxHeaderLines  = idempotent.MaxFieldLines
	maxHeaderBytes  = idempotent.MaxFieldBytes

	versionPlain  = 1
	kindTombstone = 2
)

type record struct {
	fingerprint []byte
	origin      string
	answer      *answer
}

func (r *record) encode() []byte {
	whole := idempotent.Record{Fingerprint: r.fingerprint, Origin: r.origin}
	if r.answer != nil {
		whole.Answer = r.answer
	}
	return whole.Encode(idempotent.HTTP)
}

func decode(b []byte) (*record, error) {
	f, err := idempotent.Decode(b, idempotent.HTTP)
	if err != nil {
		return nil, err
	}
	r := &record{fingerprint: f.Fingerprint, origin: f.Origin}
	if f.HasAnswer {
		if r.answer, err = readAnswer(f.Answer); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// A record of gRPC at a key of HTTP is not taken for one of HTTP, nor the other way round.
func TestRecord_ofTheOtherTransport(t *testing.T) {
	t.Parallel()
	r := idempotent.Record{Answer: &answer{status: 200}}
	for written, read := range map[idempotent.Adapter]idempotent.Adapter{
		idempotent.GRPC: idempotent.HTTP, idempotent.HTTP: idempotent.GRPC,
	} {
		_, err := idempotent.Decode(r.Encode(written), read)
		require.ErrorContains(t, err, "its kind is unknown")
		require.ErrorAs(t, err, new(*idempotency.RecordError))
	}
}
