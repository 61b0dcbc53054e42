//go:build !unix

package main

import "errors"

// Run refuses: only a Unix has what kills all processes of the command before the lease ends. The
// other commands work everywhere.
func (r *runCommand) Run(*globals) error {
	return errors.New("run needs a Unix: here, onerun cannot end all processes of a command in time")
}

func keep() (code int, keeper bool) { return 0, false }
