//go:build !race

package simulation_test

const seedsByDefault uint64 = 105 // of single and reentrant: 252 with those of redlock
