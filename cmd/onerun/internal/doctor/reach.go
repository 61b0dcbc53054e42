package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// reach checks whether the server answers, and whether the user may log in.
func (s *Server) reach(ctx context.Context, client *redis.Client) bool {
	if err := client.Ping(ctx).Err(); !answers(err) { // which connects
		s.add("reach", Problem, "%s", whyUnreachable(err))
		return false
	}
	best := time.Duration(0)
	for range 5 {
		start := time.Now()
		if err := client.Ping(ctx).Err(); !answers(err) {
			s.add("reach", Problem, "%s", whyUnreachable(err))
			return false
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	s.add("reach", OK, "answers in %v", best.Round(time.Microsecond))
	return true
}

// answers reports whether the server has answered, if only that it refuses the command: the user
// may lack the right to it, and a server that cannot write to its disk refuses PING, too.
func answers(err error) bool {
	var refusal redis.Error
	return err == nil || errors.As(err, &refusal) && !refusesUser(err)
}

func refusesUser(err error) bool {
	text := err.Error()
	return strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH") || strings.Contains(text, "invalid username-password")
}

// whyUnreachable returns what to say about the error of a connection.
func whyUnreachable(err error) string {
	text := err.Error()
	var certificate *tls.CertificateVerificationError
	switch {
	case refusesUser(err):
		return "refuses the user or the password (" + text + ")"
	case errors.As(err, &certificate), strings.Contains(text, "tls:"):
		return "TLS fails, see --tls-ca, --tls-cert and --tls-key (" + text + ")"
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(text, "i/o timeout"):
		return "does not answer in time (" + text + ")"
	}
	return "cannot be reached (" + text + ")"
}
