package simulation_test

import "testing"

// Worlds in which keys are shared: by readers and writers, by up to n holders, and by calls for
// several keys at once.
func TestSharing(t *testing.T) { simulateAll(t, sharing) }

// The same on a quorum, whose limits go by seats.
func TestSharing_quorum(t *testing.T) { simulateAll(t, quorum) }
