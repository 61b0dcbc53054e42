package redlock

import (
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

// tooFew is the error of a call without a majority: the errors of the nodes, which name the nodes.
type tooFew struct {
	nodes int
	errs  []error
}

func (e *tooFew) Error() string {
	texts := make([]string, len(e.errs))
	for i, err := range e.errs {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("%d of %d nodes failed: %s", len(e.errs), e.nodes, strings.Join(texts, "; "))
}

// Unwrap returns the nodes' errors.
func (e *tooFew) Unwrap() []error { return e.errs }

// noQuorum returns the error of a call that has no majority. It has the errors of the nodes that
// were asked. Its kind is permanent if so many of these are permanent that too few nodes are left.
func noQuorum[T any](op driver.Op, key string, asked []*node, got []reply[T]) error {
	l := asked[0].locker
	kind, permanent := driver.KindQuorum, 0
	few := &tooFew{nodes: len(l.nodes)}
	var last driver.StoreErrorKind
	for _, n := range asked {
		err := errSilent
		if i := slices.IndexFunc(got, func(r reply[T]) bool { return r.node == n }); i >= 0 {
			err = got[i].err
		}
		if err == nil {
			continue
		}
		few.errs = append(few.errs, n.named(op, key, err))
		var store *driver.StoreError
		if errors.As(err, &store) && store.Kind.Permanent() {
			permanent++
			last = store.Kind
		}
	}
	if permanent > len(l.nodes)-l.quorum {
		kind = last
	}
	return &driver.StoreError{Backend: "redlock", Op: op, Key: key, Kind: kind, Err: few}
}

// named returns the error of a node with the name of the node.
func (n *node) named(op driver.Op, key string, err error) error {
	var store *driver.StoreError
	if errors.As(err, &store) && store.Addr != "" {
		return err
	}
	named := driver.NewStoreError(n.name, op, key, err)
	named.Addr = n.facts.Addr
	return named
}
