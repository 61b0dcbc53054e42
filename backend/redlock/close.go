package redlock

import (
	"errors"
	"io"
)

// Close closes the nodes that have Close, see single.Locker.Close. Close the Guards first: releases
// on slow nodes go on for a moment in the background.
func (l *Locker) Close() error {
	var failed []error
	for _, n := range l.nodes {
		if c, ok := n.Locker.(io.Closer); ok {
			failed = append(failed, c.Close())
		}
	}
	return errors.Join(failed...)
}
