package simulation_test

import "testing"

// Worlds in which keys are shared: by readers and writers, by up to n holders, and by calls for
// several keys at once.
func TestSharing(t *testing.T) { simulateAll(t, sharing) }

// The same on a quorum, which has readers and writers, and no limits.
func TestSharing_quorum(t *testing.T) { simulateAll(t, quorum) }
