package daemon

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePorts returns ports of the loopback. They are below those that the kernel gives to clients,
// so that hardly anyone takes one of them before the servers do.
func FreePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(15000 + rand.IntN(15000)) //nolint:gosec // it need not be secret
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		defer l.Close() // until all are found, so that they differ
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("daemon: no port is free")
	return nil
}
