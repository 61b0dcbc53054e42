package redistest

import "time"

const pollStep = 5 * time.Millisecond

// poll calls try until it returns nil or the limit is over, and returns its last error.
func poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollStep)
	}
}
