package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// traceFlags are -trace, and what goes with it.
type traceFlags struct {
	on      bool
	file    string // of -trace-file, or "" for standard output
	metrics string // of -metrics, or ""
}

func (f *traceFlags) add(set *flag.FlagSet) {
	set.BoolVar(&f.on, "trace", false, "write each span as a line of JSON to standard output, log to standard error,\nand serve the metrics of each server for Prometheus")
	set.Func("trace-file", "with -trace, write the spans to this `file`, which is emptied first", func(file string) error {
		f.file = file
		if file == "" {
			return errors.New("must name a file")
		}
		return nil
	})
	set.Func("metrics", "with -trace, serve metrics at this loopback `host:port`, and those of further servers at the\nports that follow (default: free ports)", func(address string) error {
		f.metrics = address
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return errors.New("must end in the number of a port")
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return errors.New("must be on loopback, like 127.0.0.1:9464: it would be open to the network")
		}
		return nil
	})
}

// telemetrySettings are what the parent tells a server of -trace.
type telemetrySettings struct {
	Metrics string // the address to serve them at
	Verbose bool   // log each lease, too: there are thousands when the crowd comes
}

// errNoTelemetry says how to build a program that can trace.
var errNoTelemetry = errors.New("-trace needs a program with telemetry: go run -tags trace ./internal/verify/demo/coupon -trace")

// check refuses flags that would be of no effect.
func (f *traceFlags) check() error {
	switch {
	case f.on && !canTrace:
		return errNoTelemetry
	case f.on:
		return nil
	case f.file != "":
		return fmt.Errorf("-trace-file %s is of no effect without -trace", f.file)
	case f.metrics != "":
		return fmt.Errorf("-metrics %s is of no effect without -trace", f.metrics)
	}
	return nil
}

// open makes the file for the spans of the crew.
func (f *traceFlags) open(crew *stage.Crew) error {
	if f.file == "" {
		return nil
	}
	file, err := os.Create(f.file)
	if err != nil {
		return fmt.Errorf("-trace-file: %w", err)
	}
	crew.Out = &spanFile{File: file} // open until the program ends, as servers end after us
	return nil
}

// settings returns those of the ith server.
func (f *traceFlags) settings(i int, verbose bool) *telemetrySettings {
	if !f.on {
		return nil
	}
	address := "127.0.0.1:0"
	if f.metrics != "" {
		host, text, _ := net.SplitHostPort(f.metrics)
		port, _ := strconv.Atoi(text)
		if port > 0 {
			port += i
		}
		address = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return &telemetrySettings{Metrics: address, Verbose: verbose}
}

// A spanFile is a file that says, once, that it cannot be written.
type spanFile struct {
	*os.File
	said sync.Once
}

func (f *spanFile) Write(line []byte) (int, error) {
	n, err := f.File.Write(line)
	if err != nil {
		f.said.Do(func() { fmt.Fprintf(os.Stderr, "coupon: -trace-file: %v\n", err) })
	}
	return n, err
}
