//go:build unix

package child

import (
	"syscall"
	"time"
)

// An order is what the first process sends to the keeper. The end of the pipe without an order to
// kill means that the first process has died.
type order struct {
	Start  *start         `json:",omitempty"` // the command; this comes first
	Until  int64          `json:",omitempty"` // kill at this instant of the clock
	Signal syscall.Signal `json:",omitempty"` // send this to the command
	// send this as well, which the first process has got, unless the command has got it, too
	Forward syscall.Signal `json:",omitempty"`
}

// start is what the keeper starts. The path and the arguments need not be UTF-8, which strings of
// JSON are.
type start struct {
	Path  []byte
	Args  [][]byte
	Group int           // the process group to join, or 0 for one of its own
	Grace time.Duration // for what is left when the command has exited
}

// A report is what the keeper sends to the first process.
type report struct {
	PID    int            `json:",omitempty"` // the command has started
	Failed []byte         `json:",omitempty"` // or it could not be: an error with the path
	Errno  syscall.Errno  `json:",omitempty"`
	Exited bool           `json:",omitempty"` // it has exited, and so have all that it had started
	Code   int            `json:",omitempty"`
	Signal syscall.Signal `json:",omitempty"` // which has killed it
}

// The descriptors of the pipes in the keeper.
const (
	ordersFD  = 3
	reportsFD = 4
)
