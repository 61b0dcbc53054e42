package guardhttp

import "time"

// PatientShadow is WithShadow with another time to wait for the store.
func PatientShadow(d time.Duration) Option {
	return option(func(s *settings) { s.Shadow, s.Patience = true, d })
}
