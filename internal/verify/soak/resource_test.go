package soak_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A keeping is the configuration of the resource, as JSON: the socket on which it listens, and the
// file of its events.
type keeping struct{ Socket, Log string }

// keepResource is the main of the resource, until its input ends.
func keepResource(text string) {
	var k keeping
	err := json.Unmarshal([]byte(text), &k)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(k.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	var listener net.Listener
	if err == nil {
		listener, err = net.Listen("unix", k.Socket)
	}
	if err != nil {
		fmt.Println("fails", err)
		os.Exit(1)
	}
	log := history.NewLog("resource", file)
	go func() { _ = history.NewResource(log).Serve(listener) }()
	fmt.Println("listens")
	bufio.NewScanner(os.Stdin).Scan()
	if err := log.Err(); err != nil {
		fmt.Println("fails", err)
		os.Exit(1)
	}
	fmt.Println("ended")
}
