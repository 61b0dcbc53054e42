//go:build !unix

package stage

import "os"

// CanFreeze reports whether processes can be frozen on this system.
const CanFreeze = false

// Sending these fails: there is nothing like them here.
var (
	sigFreeze = os.Interrupt
	sigThaw   = os.Interrupt
)
