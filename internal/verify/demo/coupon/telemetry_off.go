//go:build !trace

package main

import (
	"errors"
	"net/http"

	"github.com/seed-1795987d/onerun/guard"
)

// canTrace is false without -tags trace: OpenTelemetry and Prometheus take long to compile, and
// most runs do not need them.
const canTrace = false

// telemetry is what a server tells of itself: nothing.
type telemetry struct{ hook, log guard.Hook }

func (s *server) watch() (telemetry, error) { return telemetry{}, errors.ErrUnsupported }

func (telemetry) close() error { return nil }

func (telemetry) traced(next http.Handler) http.Handler { return next }
