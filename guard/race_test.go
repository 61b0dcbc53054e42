//go:build race

package guard_test

const raceDetector = true
