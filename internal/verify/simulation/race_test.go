//go:build race

package simulation_test

// The race detector makes the simulation five times as slow.
const seedsByDefault uint64 = 6
