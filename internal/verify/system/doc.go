// Package system tries several processes that guard the same work: they contend, wait, close, are
// killed and are frozen. What one process sees of every backend is in guard_test.go at the top.
package system
