package redisstore

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

// connError reports whether err says that a connection must not be used again: the server has not
// answered, or it does not accept writes any more.
func connError(err error) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply) || redis.HasErrorPrefix(err, "READONLY")
}

// isElsewhere reports whether err says that a master has not run a command, and another one may.
func isElsewhere(err error) bool { return rediserr.IsMoved(err) || errors.Is(err, redis.ErrClosed) }

// keysApart reports whether err says that the keys of one script must not be in several slots: a
// Cluster stands behind what looks like one server. Some proxies word it differently.
func keysApart(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "CROSSSLOT") ||
		strings.Contains(strings.ToLower(err.Error()), "same slot"))
}
