package redistest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// A Router is a proxy in front of servers that treats commands as other people's proxies do. A
// Proxy has one server, and breaks the connection; a Router decides where a command goes, and which
// is refused. It accepts connections until the end of the test. Each connection of a client has one
// to each server. It is safe for concurrent use.
type Router struct {
	listener net.Listener
	servers  []string
	route    func(command []string) (server int, refusal string)
}

// startRouter starts a Router in front of the servers. route returns the server of a command, or
// the text of the error that is the answer.
func startRouter(t testing.TB, servers []string, route func([]string) (int, string)) *Router {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatalf("redistest: start a router: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &Router{listener: l, servers: servers, route: route}
	go p.accept()
	return p
}

// Addr returns the address of the Router.
func (p *Router) Addr() string { return p.listener.Addr().String() }

func (p *Router) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(c)
	}
}

// serve answers the commands of a connection one at a time.
func (p *Router) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	servers := make([]*bufio.ReadWriter, len(p.servers))
	for i, addr := range p.servers {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		servers[i] = bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	}
	r := bufio.NewReader(client)
	w := bufio.NewWriter(client)
	for {
		raw, err := readRequest(r)
		if err != nil {
			return
		}
		command := textsOf(raw)
		if len(servers) == 1 && len(command) > 0 && subscribes(command) {
			subscribed(client, r, servers[0], raw)
			return
		}
		answer := []byte("-ERR no command\r\n")
		if len(command) > 0 {
			answer, err = p.answer(servers, raw, command)
		}
		if err != nil {
			return
		}
		_, _ = w.Write(answer)
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

func subscribes(command []string) bool {
	switch strings.ToUpper(command[0]) {
	case "SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE":
		return true
	}
	return false
}

// subscribed passes everything on, in both directions, after the first command.
func subscribed(client net.Conn, from io.Reader, server *bufio.ReadWriter, first []byte) {
	go func() {
		_, _ = io.Copy(client, server.Reader)
		_ = client.Close()
	}()
	if _, err := server.Write(first); err != nil || server.Flush() != nil {
		return
	}
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			_, _ = server.Write(buffer[:n])
			err = cmp.Or(err, server.Flush())
		}
		if err != nil {
			return
		}
	}
}

func (p *Router) answer(servers []*bufio.ReadWriter, raw []byte, command []string) ([]byte, error) {
	command[0] = strings.ToUpper(command[0])
	if command[0] == "HELLO" { // RESP2 only
		return []byte("-ERR unknown command 'HELLO'\r\n"), nil
	}
	if subscribes(command) {
		return []byte("-ERR unsupported command\r\n"), nil
	}
	to, refusal := p.route(command)
	if refusal != "" {
		return fmt.Appendf(nil, "-%s\r\n", refusal), nil
	}
	if _, err := servers[to].Write(raw); err != nil {
		return nil, err
	}
	if err := servers[to].Flush(); err != nil {
		return nil, err
	}
	return readValue(servers[to].Reader)
}

// keysOf returns the keys of a script, or the only key of another command.
func keysOf(command []string) []string {
	switch command[0] {
	case "EVAL", "EVALSHA":
		n, err := strconv.Atoi(command[2])
		if err != nil || n > len(command)-3 {
			return nil
		}
		return command[3 : 3+n]
	case "PING", "CLIENT", "SELECT", "INFO", "SCRIPT", "CONFIG", "TIME":
		return nil
	}
	return command[1:min(2, len(command))]
}

// textsOf returns the strings of a command.
func textsOf(command []byte) (texts []string) {
	rest := string(command)
	for {
		_, after, found := strings.Cut(rest, "$")
		head, body, _ := strings.Cut(after, "\r\n")
		n, err := strconv.Atoi(head)
		if !found || err != nil || n > len(body) {
			return texts
		}
		texts, rest = append(texts, body[:n]), body[n:]
	}
}
