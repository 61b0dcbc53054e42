//go:build unix

package main

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal that stops programs, such as Ctrl-Z, comes while the command starts: both stop, or
// neither does. If onerun alone stopped, the command would run on until the keeper killed it.
func TestDispatcher_stopsWithTheCommandThatStarts(t *testing.T) {
	for name, test := range map[string]struct {
		early []syscall.Signal
		stops bool
	}{
		"stopped":           {[]syscall.Signal{syscall.SIGTSTP}, true},
		"and continued":     {[]syscall.Signal{syscall.SIGTSTP, syscall.SIGCONT}, false},
		"and stopped again": {[]syscall.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGTTIN}, true},
		"another signal":    {[]syscall.Signal{syscall.SIGUSR1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDispatcher()
			stopped := 0
			d.stop = func() { stopped++ }
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			d.cancel = cancel
			_, err := d.start(ctx)
			require.NoError(t, err)
			defer d.cancel(nil)
			for _, s := range test.early {
				d.take(s)
			}
			require.Zero(t, stopped, "the command does not have the signal yet")
			var sent []syscall.Signal
			require.Equal(t, test.stops, d.sendEarly(func(s syscall.Signal) { sent = append(sent, s) }))
			require.Equal(t, test.early, sent)
		})
	}
}

// There is no command yet: onerun stops while it waits for the key.
func TestDispatcher_stopsWhileItWaits(t *testing.T) {
	d := newDispatcher()
	stopped := 0
	d.stop = func() { stopped++ }
	d.take(syscall.SIGTSTP)
	require.Equal(t, 1, stopped)
}
