//go:build !race

package simulation_test

const seedsByDefault uint64 = 210 // of single and reentrant: 504 with those of redlock
