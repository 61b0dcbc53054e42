// Package rediserr says what errors of go-redis and of Redis servers mean, and turns panics of a
// client's hooks into errors.
package rediserr

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// KindOf returns the kind of an error that go-redis has returned.
func KindOf(err error) driver.StoreErrorKind {
	var reply redis.Error
	if errors.As(err, &reply) {
		return kindOfReply(reply.Error())
	}
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return driver.KindPoolExhausted
	case errors.Is(err, redis.ErrClosed):
		return driver.KindClosed
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return driver.KindTimeout
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return driver.KindConnection
	}
	return driver.KindOther
}

// replies are the kinds of error replies, by a part of their text. The first match decides. If a
// command in a script fails, Redis before 7 embeds the error in another one. So the code does not
// always come first.
var replies = []struct {
	part string
	kind driver.StoreErrorKind
}{
	{"WRONGTYPE ", driver.KindWrongType},
	{"OOM ", driver.KindOOM},
	{"MISCONF ", driver.KindNotPersisted},
	{"READONLY ", driver.KindReadOnly},
	{"RESTARTED ", driver.KindRestarted}, // from grant.lua
	{"BADFENCE ", driver.KindProtocol},   // from counter.lua
	{"MASTERDOWN ", driver.KindReadOnly},
	{"LOADING ", driver.KindLoading},
	{"BUSY ", driver.KindScriptBusy},
	{"NOREPLICAS ", driver.KindNoReplicas},
	{"NOAUTH ", driver.KindAuth},
	{"WRONGPASS ", driver.KindAuth},
	{"NOPERM ", driver.KindAuth},
	{"invalid password", driver.KindAuth}, // AUTH before Redis 6
	// a long command on a connection that is not authenticated
	{"unauthenticated ", driver.KindAuth},
	{"without any password", driver.KindAuth},   // a password is given, but none is set
	{"can't run this command", driver.KindAuth}, // an ACL, from within a script
	{"max number of clients", driver.KindLimit},
	{"MOVED ", driver.KindMoved},
	{"ASK ", driver.KindMoved},
	{"TRYAGAIN ", driver.KindMoved},
	{"CLUSTERDOWN ", driver.KindMoved},
	{"nknown command", driver.KindUnsupported},       // from the server
	{"bad lua script", driver.KindUnsupported},       // from a service that parses scripts
	{"nknown Redis command", driver.KindUnsupported}, // from within a script
	// Redis before 5, which replicates scripts verbatim
	{"after non deterministic commands", driver.KindUnsupported},
	// an argument that an old server does not know
	{"syntax error", driver.KindUnsupported},
}

func kindOfReply(text string) driver.StoreErrorKind {
	for _, r := range replies {
		if strings.Contains(text, r.part) {
			return r.kind
		}
	}
	return driver.KindOther
}

// IsMoved reports whether a node of a Cluster has refused a command because its keys are on
// another node or on their way there. Such a command was not run.
func IsMoved(err error) bool { return err != nil && KindOf(err) == driver.KindMoved }
