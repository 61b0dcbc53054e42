//go:build !race

package simulation_test

const seedsByDefault uint64 = 75 // of single and reentrant: 180 with those of redlock
