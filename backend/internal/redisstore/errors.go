package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard"
)

// error returns err, with which a call has ended, as a *guard.StoreError.
func (s *Store) error(c *Call, err error) error {
	if s.nodes != nil {
		s.nodes.heed(err)
	}
	return &guard.StoreError{Store: s.backend, Op: c.Op, Key: c.Key, Addr: s.addr, Kind: kindOf(err), Err: err}
}

// kindOf says what kind of error go-redis has returned.
func kindOf(err error) guard.Kind {
	var reply redis.Error
	if errors.As(err, &reply) {
		return kindOfReply(reply.Error())
	}
	var network net.Error
	var short shortOfAcks
	switch {
	case errors.As(err, &short):
		return guard.KindNoReplicas
	case errors.Is(err, ErrAnswer):
		return guard.KindProtocol
	case errors.Is(err, context.Canceled):
		return guard.KindCanceled
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return guard.KindPoolExhausted
	case errors.Is(err, redis.ErrClosed):
		return guard.KindClosed
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return guard.KindTimeout
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return guard.KindConnection
	}
	return guard.KindOther
}

// replies tells the kinds of error replies by a part of their text. Redis before 7 puts the text of an
// error that a command in a script has returned inside of one of its own, so the code is not always in
// front. The first one that fits counts.
var replies = []struct {
	part string
	kind guard.Kind
}{
	{"WRONGTYPE ", guard.KindWrongType},
	{"OOM ", guard.KindOOM},
	{"READONLY ", guard.KindReadOnly},
	{"RESTARTED ", guard.KindRestarted}, // from grant.lua
	{"MASTERDOWN ", guard.KindReadOnly},
	{"LOADING ", guard.KindLoading},
	{"BUSY ", guard.KindScriptBusy},
	{"NOREPLICAS ", guard.KindNoReplicas},
	{"NOAUTH ", guard.KindAuth},
	{"WRONGPASS ", guard.KindAuth},
	{"NOPERM ", guard.KindAuth},
	{"invalid password", guard.KindAuth},       // AUTH before Redis 6
	{"unauthenticated ", guard.KindAuth},       // a command too long for one who has not given a password
	{"without any password", guard.KindAuth},   // a password where none is set
	{"can't run this command", guard.KindAuth}, // an ACL, from within a script
	{"max number of clients", guard.KindLimit},
	{"MOVED ", guard.KindMoved},
	{"ASK ", guard.KindMoved},
	{"TRYAGAIN ", guard.KindMoved},
	{"CLUSTERDOWN ", guard.KindMoved},
	{"nknown command", guard.KindUnsupported},                   // from the server
	{"nknown Redis command", guard.KindUnsupported},             // from within a script
	{"after non deterministic commands", guard.KindUnsupported}, // Redis before 5, where scripts are replicated as such
	{"syntax error", guard.KindUnsupported},                     // an argument that the server is too old for
}

func kindOfReply(text string) guard.Kind {
	for _, r := range replies {
		if strings.Contains(text, r.part) {
			return r.kind
		}
	}
	return guard.KindOther
}

// isMoved reports whether a node of a Cluster has refused a command, and has not run it, as its keys are on another, or in between.
func isMoved(err error) bool { return err != nil && kindOf(err) == guard.KindMoved }
