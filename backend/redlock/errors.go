package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// errSilent is the error of a node that had not answered when the call ended.
var errSilent = errors.New("no answer so far")

// unsupported are the errors of nodes that lack an ability.
var unsupported = map[driver.Op]error{
	driver.OpInspect: errors.New("the store cannot show its keys"),
	driver.OpLedger:  errors.New("the store has no ledger"),
}

// contextEnded returns an error if the context has ended before a call: it asks no node then.
func contextEnded(ctx context.Context, op driver.Op, key string) error {
	if err := ctx.Err(); err != nil {
		return driver.NewStoreError("redlock", op, key, err)
	}
	return nil
}

// noQuorum returns the error of a call that has no majority: that of ctx if the caller has left.
// Otherwise it has the errors of the nodes that were asked. Its kind is permanent if so many of
// these are permanent that too few nodes are left.
func noQuorum[T any](ctx context.Context, op driver.Op, key string, asked []*node, got []reply[T]) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return driver.NewStoreError("redlock", op, key, err)
	}
	l := asked[0].locker
	kind, permanent := driver.KindQuorum, 0
	var errs []any
	var last driver.StoreErrorKind
	for _, n := range asked {
		err := errSilent
		if i := slices.IndexFunc(got, func(r reply[T]) bool { return r.node == n }); i >= 0 {
			err = got[i].err
		}
		if err == nil {
			continue
		}
		errs = append(errs, n.named(op, key, err))
		var store *driver.StoreError
		if errors.As(err, &store) && store.Kind.Permanent() {
			permanent++
			last = store.Kind
		}
	}
	if permanent > len(l.nodes)-l.quorum {
		kind = last
	}
	each := strings.TrimSuffix(strings.Repeat("%w; ", len(errs)), "; ")
	few := fmt.Errorf(fmt.Sprintf("%d of %d nodes failed: ", len(errs), len(l.nodes))+each, errs...)
	return &driver.StoreError{Backend: "redlock", Op: op, Key: key, Kind: kind, Err: few}
}

// named returns the error of a node with the name of the node.
func (n *node) named(op driver.Op, key string, err error) error {
	var store *driver.StoreError
	if errors.As(err, &store) && store.Addr != "" {
		named := *store
		named.Key = key // a server states its identity without one
		return &named
	}
	named := driver.NewStoreError(n.name, op, key, err)
	named.Addr = n.facts.Addr
	return named
}
