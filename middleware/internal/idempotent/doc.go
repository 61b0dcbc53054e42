// Package idempotent runs a call once for each key. It is what middleware/http and middleware/grpc
// share, and knows neither HTTP nor gRPC.
//
// An adapter finds the key and the fingerprint of a call, and implements [Transport], by which the
// package runs the handler and reads recorded answers. [Call.Lead] returns after the handler ran
// under a lease, or says in Call.Result why it did not.
package idempotent

// An Adapter is a package that adapts a transport. The zero Adapter is none.
type Adapter uint8

// The adapters.
const (
	HTTP Adapter = iota + 1
	GRPC
)

// String returns the name in reports, which is also the default name of the work.
func (a Adapter) String() string {
	if a == GRPC {
		return "grpc"
	}
	return "http"
}

// Package returns the name of the adapter's package, with which its errors begin.
func (a Adapter) Package() string { return "guard" + a.String() }

// kind returns the kind of the adapter's answers, see record.go.
func (a Adapter) kind() byte {
	if a == GRPC {
		return kindReply
	}
	return kindAnswer
}

// NeverReplayed are the headers of an answer that are not recorded, in the canonical form of HTTP:
// those of one connection (RFC 9110, section 7.6.1), those that the server sets itself, and those
// that are secrets of the call that got them.
var NeverReplayed = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",

	"Content-Length", "Date",

	"Authentication-Info", "Authorization", "Proxy-Authentication-Info", "Set-Cookie", "Set-Cookie2", "Www-Authenticate",
}
