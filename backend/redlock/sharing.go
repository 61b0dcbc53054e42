package redlock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Sharer = (*Locker)(nil)

// CheckAmong implements driver.Sharer. It returns nil for driver.Any, and for a limit whose
// holders have a seat each, if all nodes can share keys that way. It refuses larger limits. Each
// node would count only its own holders. So a key with a limit of n could have more holders: one
// for each majority that can be made of n grants on each node. With seats, nothing is counted, see
// driver.Sharer.
func (l *Locker) CheckAmong(n int) error {
	option := "WithShared"
	if n != driver.Any {
		option = "WithLimit"
	}
	if n != driver.Any && n > driver.MaxSeats {
		return &driver.SettingError{
			Setting: option, Value: strconv.Itoa(n),
			Reason: fmt.Sprintf("must be at most %d, as it goes by seats: %d nodes that count up to %d each would admit %d",
				driver.MaxSeats, len(l.nodes), n, len(l.nodes)*n/l.quorum),
		}
	}
	for _, node := range l.nodes {
		sharer, ok := driver.Ability[driver.Sharer](node.Locker)
		if !ok {
			return &driver.SettingError{
				Setting: option, Reason: fmt.Sprintf("%s (%T) grants a key to one claim at a time", node.name, node.Locker),
			}
		}
		if err := sharer.CheckAmong(n); err != nil {
			return fmt.Errorf("redlock: %s: %w", node.name, err)
		}
		if seater, ok := driver.Ability[driver.Seater](node.Locker); n != driver.Any && (!ok || !seater.Seats()) {
			return &driver.SettingError{
				Setting: option, Value: strconv.Itoa(n),
				Reason: fmt.Sprintf("%s (%T) does not let a quorum choose the seat", node.name, node.Locker),
			}
		}
	}
	return nil
}

// sameHolder reports whether the nodes that gave these answers may have the same holder. Claims
// that share a key do so on all nodes, but not in the same order, so that each node names another
// one. If they have seats, a node names all of them. Claims that get only a part of a quorum have
// other seats on each node.
func sameHolder(a, b driver.Grant) bool {
	return a.Holder == b.Holder || a.Shared && b.Shared && (!namesAll(a) || !namesAll(b))
}

func namesAll(g driver.Grant) bool { return strings.HasPrefix(g.Holder, " ") }

// countWanted returns how many nodes keep other claims away for the claim, which they refused.
func countWanted(votes []vote) (n int) {
	for _, v := range votes {
		if v.err == nil && v.grant.Wanted {
			n++
		}
	}
	return n
}
