package redistest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

const loopback = "127.0.0.1"

// port keeps a TCP port of the loopback for one server, also while that server is down.
//
// It is a socket that is bound and never listens. The kernel refuses the port to others, for a
// server and as the source of an outgoing connection. redis-server gets it, because both sockets
// set SO_REUSEADDR. Picking a port and closing it again was rejected: a client that dials a killed
// server could get the server's port as its source, and Restart would find it taken.
type port struct {
	fd     int
	number int
}

// holdPort takes a free port. The caller must release it.
func holdPort() (*port, error) { return holdNumber(0) }

// holdNumber takes the port with that number, or a free one if it is 0.
func holdNumber(number int) (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("redistest: hold a port: %w", os.NewSyscallError("socket", err))
	}
	held := &port{fd: fd}
	if err := held.bind(number); err != nil {
		held.release()
		return nil, fmt.Errorf("redistest: hold a port: %w", err)
	}
	return held, nil
}

// bind sets SO_REUSEADDR after the bind, not before: two holders must exclude each other.
func (p *port) bind(number int) error {
	at := &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Bind(p.fd, at); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := syscall.SetsockoptInt(p.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	name, err := syscall.Getsockname(p.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	p.number = name.(*syscall.SockaddrInet4).Port
	return nil
}

func (p *port) addr() string { return net.JoinHostPort(loopback, p.String()) }

func (p *port) String() string { return strconv.Itoa(p.number) }

func (p *port) release() { _ = syscall.Close(p.fd) }
