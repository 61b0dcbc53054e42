package redlock

import (
	"fmt"
	"strconv"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// checkSharing returns nil for driver.Unlimited if all nodes can share keys.
// It refuses limits. Each node knows only a part of the holders, so a key with a limit of n could
// have more of them: one for each majority that can be made of n grants on each node.
func (l *Locker) checkSharing(n int) error {
	if n != driver.Unlimited {
		return &driver.SettingError{
			Setting: "WithLimit", Value: strconv.Itoa(n),
			Reason: "cannot be kept on a quorum, as each of its nodes knows only a part of the holders: " +
				"backend/single, reentrant, postgres and memory can",
		}
	}
	for _, node := range l.nodes {
		if node.facts.Shares == nil {
			return &driver.SettingError{
				Setting: "WithShared", Reason: fmt.Sprintf("%s (%T) grants a key to one claim at a time", node.name, node.Locker),
			}
		}
		if err := node.facts.Shares(n); err != nil {
			return fmt.Errorf("redlock: %s: %w", node.name, err)
		}
	}
	return nil
}

// sameHolder reports whether the nodes that gave these answers may have the same holder. Claims
// that share a key do so on all nodes, but not in the same order, so that each node names another
// one.
func sameHolder(a, b driver.Answer) bool {
	return a.Holder == b.Holder || a.Reason.IsShared() && b.Reason.IsShared()
}

// countWanted returns how many nodes keep other claims away for the claim, which they refused.
func countWanted(votes []vote) (n int) {
	for _, v := range votes {
		if v.wants() {
			n++
		}
	}
	return n
}
