package idempotent

import (
	"net/textproto"
	"slices"
)

// NeverReplayed reports whether a header of an answer, or metadata of a reply, is not recorded.
func NeverReplayed(name string) bool {
	return slices.Contains(neverReplayed, textproto.CanonicalMIMEHeaderKey(name))
}

// neverReplayed are the headers of an answer that are not recorded, in the canonical form of HTTP:
// those of one connection or proxy (RFC 9110, section 7.6.1; RFC 9209), those that the server sets
// itself or that measure one run, those that are of one request, such as its ID and what is left of
// its client's quota, and those that are secrets of the call that got them. The last
// are cookies and authentication of RFC 9110, nonces that are used once (RFC 8555, RFC 9449), and
// names by which APIs commonly give out credentials. A pattern such as X-*-Token is not one of
// them: it includes tokens of pages and uploads, without which a replay is of no use.
var neverReplayed = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Proxy-Status", "Transfer-Encoding", "Upgrade",

	"Content-Length", "Date", "Server-Timing",

	"Correlation-Id", "Ratelimit", "Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining", "Ratelimit-Reset", "Request-Id",
	"Traceresponse", "X-Correlation-Id", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Request-Id", "X-Trace-Id",

	"Authentication-Info", "Authorization", "Cookie", "Proxy-Authentication-Info", "Set-Cookie", "Set-Cookie2", "Www-Authenticate",
	"Dpop-Nonce", "Replay-Nonce",
	"X-Access-Token", "X-Amz-Security-Token", "X-Api-Key", "X-Auth-Token", "X-Csrf-Token", "X-Refresh-Token", "X-Session-Id",
	"X-Session-Token", "X-Subject-Token", "X-Vault-Token", "X-Xsrf-Token",
}
