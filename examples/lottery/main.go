// Lottery is a service in five replicas, whose clocks differ. All have the same cron entry, which
// draws ten winners. The first replica that draws is frozen in the middle of its draw.
//
//	go run ./examples/lottery                 one draw counts, and it has ten winners
//	go run ./examples/lottery -guard=false    each replica draws: there are fifty winners
//
// It needs only Go: Redis is inside the program, and the database is a file of bbolt. Start with
// replica.go. The last lines are read back from the database. The leases can be in SQL as well:
//
//	go run -tags sql ./examples/lottery -backend sqlite
//	go run -tags sql ./examples/lottery -backend postgres -db postgres:///shop
//	go run -tags sql ./examples/lottery -backend mysql -db 'root@tcp(127.0.0.1:3306)/shop'
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/examples/internal/leases"
	"github.com/seed-1795987d/onerun/guard"
)

const (
	replicas, winners, entrants = 5, 10, 500
	ttl                         = time.Second // after a crash, the next replica draws this soon
)

func main() {
	guarded := flag.Bool("guard", true, "draw under a lease; false shows what happens without one")
	store := leases.Flags()
	flag.Parse()
	if !report(run(store(), *guarded)) {
		os.Exit(1)
	}
}

// run has all replicas fire the draw, and returns what the database has then.
func run(store *leases.Store, guarded bool) raffle {
	defer store.Close()
	db := embedded.Open(raffle{})
	defer db.Close()
	due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Second)
	var crons []*cron.Cron
	var fired sync.WaitGroup // in each replica
	var frozen atomic.Bool
	for i := range replicas { // each is as a process of its own would be
		g := embedded.Must(guard.New(store.Locker(), guard.WithNamespace("lottery"),
			guard.WithTTL(ttl), guard.WithoutRenewal())) // a frozen process does not renew either
		defer g.Close(context.Background())
		r := &replica{name: fmt.Sprint("replica ", i+1), db: db, frozen: &frozen}
		fired.Add(1)
		c := cron.New(cron.WithSeconds(), cron.WithChain(late(time.Duration(i)*50*time.Millisecond, sync.OnceFunc(fired.Done))))
		spec := due.Format("5 4 15 * * *") // the second, minute and hour
		if guarded {
			jobs := embedded.Must(r.schedule(g, c, spec))
			defer jobs.Close(context.Background())
		} else {
			embedded.Must(c.AddFunc(spec, func() { _ = r.report(r.draw(0)) }))
		}
		c.Start()
		crons = append(crons, c)
	}
	fired.Wait()
	for _, c := range crons {
		<-c.Stop().Done() // the draws have ended
	}
	return db.Read()
}

// late stands for a clock that is behind by d. It calls fired when the clock has reached a tick.
func late(d time.Duration, fired func()) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() { fired(); time.Sleep(d); job.Run() })
	}
}

// report compares it with what is promised.
func report(r raffle) (kept bool) {
	kept = true
	line := func(what string, promised, found int) {
		verdict := "ok"
		if found != promised {
			verdict, kept = "WRONG", false
		}
		fmt.Printf("%-17s promised %3d   found %4d   %s\n", what, promised, found, verdict)
	}
	line("draws that count", 1, r.Draws)
	line("winners", winners, len(r.Winners))
	fmt.Println("late writes that the fence kept out:", r.Refused)
	return kept
}
