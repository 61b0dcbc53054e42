//go:build !race

package simulation_test

const seedsByDefault uint64 = 30 // of single and reentrant: 72 with those of redlock
