package redisstore

// A keyMode says which keys a server takes in one script.
type keyMode int32

// The mode 0 says that any keys can share a script.
const (
	// oneSlot says that the keys of a script must be in one slot: a Cluster, perhaps behind what
	// looks like one server.
	oneSlot keyMode = 1
	// oneCall says that each call must have a script of its own.
	oneCall keyMode = 2
	// firstKey says that a proxy routes a script by its first key. It comes with oneCall.
	firstKey keyMode = 4
	// unproven says that nothing is known yet, see probe.go.
	unproven keyMode = 8
	// literalKeys says that the server parses scripts, see literal.go. It comes with oneCall.
	literalKeys keyMode = 16
)

// alone reports whether each call has a script of its own.
func (m keyMode) alone() bool { return m&(oneCall|unproven) != 0 }

// stricter returns the mode to try if the server refuses the keys of a script.
func (m keyMode) stricter() keyMode {
	if m&oneSlot == 0 {
		return m | oneSlot
	}
	return m | oneCall
}
