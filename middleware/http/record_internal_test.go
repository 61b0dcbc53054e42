package guardhttp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// A record that another program has made within the rules is replayed. One that would make no
// answer of HTTP is not.
func TestRead_ofWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	q := &exchange{m: &middleware{}}
	read := func(a *idempotent.Answer) bool {
		q.replayed = nil
		err := q.Read(a)
		require.Equal(t, err == nil, q.replayed != nil)
		if err != nil {
			require.ErrorAs(t, err, new(*idempotency.RecordError))
		}
		return err == nil
	}
	for status, ok := range map[int]bool{-1: false, 0: false, 100: false, 101: false, 199: false, 200: true, 202: true, 999: true, 1000: false} {
		require.Equal(t, ok, read(&idempotent.Answer{Status: status}), status)
	}
	for name, ok := range map[string]bool{"X": true, "x-lower": true, "": false, "X Bad": false, "X-Bad:": false, "X-\r\nBad": false, "\x00": false} {
		require.Equal(t, ok, read(&idempotent.Answer{Status: 200, Header: http.Header{name: {"v"}}}), "%q", name)
		if !ok {
			require.Empty(t, replayable(http.Header{name: {"v"}}, nil), "it is left out of a record")
		}
	}
	for value, ok := range map[string]bool{"": true, "\t\xff": true, "\x01": false, "a\r\nb": false, strings.Repeat("v", idempotent.MaxFieldBytes): false} {
		require.Equal(t, ok, read(&idempotent.Answer{Status: 200, Header: http.Header{"X": {value}}}), "%q", value)
	}
	require.False(t, read(&idempotent.Answer{Status: 200, Type: "type.googleapis.com/a.B"}))
	require.False(t, read(&idempotent.Answer{Status: 200, Trailer: http.Header{}}))
	h := http.Header{}
	for _, name := range []string{"Set-Cookie", "set-cookie", "SET-COOKIE", "Connection", "keep-alive", "Trailer", "transfer-encoding", "Www-Authenticate"} {
		setHeaders(h, http.Header{name: {"evil"}})
	}
	require.Empty(t, h, "whatever wrote the record")
}
