package guardhttp

import (
	"net/http"
)

// KeepFinal is the default of WithPolicy. It keeps 2xx, 3xx and 4xx, except for those that the
// same request may not get the next time. These are 401, 403, 407, 408, 421, 423, 425, 429, and
// 499, which some servers use if the client has gone. It does not keep a refusal of another
// guardhttp behind the handler, such as that of the service behind a gateway, if the refusal has a
// Retry-After header.
func KeepFinal(status int, header http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, 499:
		return false
	}
	if header.Get(refusedHeader) != "" && header.Get("Retry-After") != "" {
		return false
	}
	return status >= 200 && status < 500
}
