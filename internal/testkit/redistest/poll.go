package redistest

import "time"

const pollStep = 5 * time.Millisecond

// poll calls try until it returns nil or startLimit is over, and returns its last error.
func poll(try func() error) error {
	deadline := time.Now().Add(startLimit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollStep)
	}
}
