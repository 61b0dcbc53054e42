// Package simulation runs the whole stack in virtual time: Guards, backends and go-redis clients
// over a network and miniredis servers in which everything goes wrong that a seed says. All of it
// is in the tests.
//
// One seed is one world: a few processes whose workers take leases and write to a resource, while
// a nemesis freezes, cuts, empties and restarts the servers, or makes their clocks jump. Worlds
// differ in what goes wrong (mix) and in what the workers do beside (cast): work that is done
// once, lines of callers, processes that are stopped and hosts that are suspended, HTTP requests,
// asynq's tasks and cron's ticks. What must hold is checked while it runs. The same seed gives the
// same trace, or one of a few where two things come at the same instant, so a seed that fails can
// be looked at:
//
//	ONERUN_SIM_SEED=17 go test ./internal/verify/simulation -run 'TestSimulation/single' -v
//	ONERUN_SIM_SEEDS=20000 go test ./internal/verify/simulation -run TestSimulation
//
// Worlds in which keys are shared (TestSharing) have a memory.Locker behind the network, in place
// of miniredis. There are readers and writers, holders on whose number the processes do not agree,
// and calls for several keys. Processes also crash.
//
// What miniredis cannot do is not in here: failover, Cluster, a full memory, a script that blocks.
// Those are tested on real servers.
package simulation
