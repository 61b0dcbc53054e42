package faults_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// taskEnv has the task of a test binary that is a child of the test, as JSON.
const taskEnv = "ONERUN_FAULTS_TASK"

// A task is what a child process is for: a worker, or the resource.
type task struct {
	Process  string // its name in the history
	Log      string // the file for its history
	Socket   string // the resource's
	Resource bool   // it is the resource

	Backend string // single, reentrant, redlock, cluster, sentinel or sentinel-cluster
	Addrs   []string
	Reroute map[string]string // where clients connect to instead of an address
	TTL     time.Duration
	Pool    int // the size of the client's pool, or 0 for its default
	Procs   int // GOMAXPROCS, or 0 for its default

	program string   // what it is, or "" for the test binary
	env     []string // added to that of the test
}

func TestMain(m *testing.M) {
	if os.Getenv(taskEnv) == "" {
		redistest.AtOnce(atOnce())
		redistest.VerifyNoLeaks(m)
	}
	var do task
	if err := json.Unmarshal([]byte(os.Getenv(taskEnv)), &do); err != nil {
		fail(err)
	}
	file, err := os.OpenFile(do.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fail(err)
	}
	log := history.NewLog(do.Process, file)
	if do.Resource {
		serve(do.Socket, log)
	} else {
		work(do, log)
	}
	if err := log.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serve is the life of the resource: until the test closes its stdin.
func serve(socket string, log *history.Log) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fail(err)
	}
	go func() { _ = history.NewResource(log).Serve(listener) }()
	fmt.Println("ok")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
