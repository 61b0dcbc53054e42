//go:build !race

package simulation_test

const seedsByDefault uint64 = 250
