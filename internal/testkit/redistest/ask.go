package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"
)

// ask sends one command over a connection of its own and returns the reply as it came. It does
// without go-redis, whose handshake would show in the counters that Calls reads. The stat is
// the name under which Redis counts the command.
func (s *Server) ask(stat, command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), startLimit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(startLimit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	reply, err := readValue(bufio.NewReader(conn))
	if err != nil {
		return "", err
	}
	if reply[0] == '-' {
		return "", fmt.Errorf("%s: %s", command, strings.TrimSpace(string(reply[1:])))
	}
	s.mu.Lock()
	s.asked[stat]++
	s.mu.Unlock()
	return string(reply), nil
}

// ping returns nil when the server answers, be it that it is LOADING.
func (s *Server) ping() error {
	_, err := s.ask("ping", "PING")
	if err != nil && strings.HasPrefix(err.Error(), "PING: LOADING") {
		return nil
	}
	return err
}
