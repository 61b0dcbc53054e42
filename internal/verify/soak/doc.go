// Package soak has six processes work for a while with all that Onerun has, while a nemesis does
// to them and to their servers what a seed says; and then looks at what they believed, wrote and
// ran. All of it is in the tests.
//
// Each process runs under one store: plain calls of Do and Acquire, a handler of net/http behind
// its own server, an asynq server, an asynq scheduler, and entries of cron. The nemesis freezes,
// kills and empties servers, cuts, darkens and delays connections, loses replies, forgets scripts,
// deletes keys, and pauses, kills and replaces processes. Once in each round of faults, all stores
// are away for 5 to 60 s. At last the nemesis rests. All that was asked for has to be done then,
// each tick has to have run or been reported, and no task may be archived.
//
// go test has a short form, of one seed and one backend. The same seed gives the same faults, in
// the same order:
//
//	go run ./internal/verify/cmd/proof soak -for 10m -seed 17
//
// and what the processes did stays in bin/_artifacts, an event a line.
//
// asynq's own Redis and the resource that the work writes to have no faults: what they lose is not
// Onerun's to keep.
package soak
