// Lottery is a job that every replica of a service fires, as it has the same cron entry: in five
// processes, whose clocks differ by up to a few hundred milliseconds, cron fires the same draw
// three times. A round has ten winners, so it must be drawn once.
// In the folder internal/verify/demo:
//
//	go run ./lottery                     one replica draws each round; the others skip it
//	go run ./lottery -guard=off          each replica draws: a round has up to 50 winners
//	go run ./lottery -kill               the replica that draws is killed; another draws
//	go run ./lottery -ui 127.0.0.1:7380  with the page for operators, until Ctrl-C
//
// It needs nothing but Go: Redis is inside the program (or -redis host:port), and the database is a
// file of bbolt, which has transactions. The table at the end is read back from that database. The
// leases are kept in one Redis, or, with -backend redlock, in a majority of five; -backend
// reentrant is for those who have Redisson beside it.
//
// What matters is in draw.go: how the Guard is made, the cron entry with and without it, and how
// the database refuses what a replica writes that has lost its lease without knowing. In
// records.go, the program reads back from Redis who has run which tick.
package main

import (
	"flag"
	"os"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

const about = `
Lottery has cron fire the same draw in five replicas at nearly the same time, three times over. A round
has ten winners.

  lottery              each round is drawn by one replica; the others say why they skip it
  lottery -guard=off   each replica draws, and a round has up to fifty winners
  lottery -kill        the replica that draws is killed in mid-draw; another one takes over
  lottery -ui 127.0.0.1:7380   the first, with the page for operators, until Ctrl-C`

func main() {
	var r replica
	if ctx, parent, ok := stage.Join(&r); ok { // we are one of the five
		os.Exit(r.main(ctx, parent))
	}
	var d director
	os.Exit(stage.Example{
		Name:    "lottery",
		About:   about,
		Buckets: []string{bucketRounds, bucketWinners, bucketDraws},
		Flags: func(set *flag.FlagSet) {
			set.BoolVar(&d.kill, "kill", false, "in each round, kill the replica that draws, in mid-draw")
		},
		Play: d.play,
	}.Main(os.Args[1:]))
}
