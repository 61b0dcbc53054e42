package postgrestest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Kill ends the server and all of its processes with SIGKILL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.daemon.Process.Freeze(); err != nil { // so that it starts no more processes
		t.Fatalf("postgrestest: kill: %v", err)
	}
	children := s.children()
	s.daemon.Process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	for _, pid := range children {
		for syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}

// Restart starts a server that was killed again, on its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.serve(); err != nil {
		t.Fatalf("postgrestest: restart: %v", err)
	}
}

// Freeze stops all processes of the server with SIGSTOP, until Thaw.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.daemon.Process.Freeze(); err != nil { // so that it starts no more processes
		t.Fatalf("postgrestest: freeze: %v", err)
	}
	for _, pid := range s.children() {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() {
	for _, pid := range s.children() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	_ = s.daemon.Process.Thaw() // fails only if it has ended
}

// StartReplica runs another server that follows this one asynchronously, until Promote. It stops
// when the test ends.
func (s *Server) StartReplica(t testing.TB) *Server {
	t.Helper()
	r := newServer(s.daemon.Bin)
	r.daemon.RunFor(t, func() error { return r.follow(s.daemon.Dir) })
	return r
}

// Follow makes a server that has ended a replica of another one, as StartReplica does. It loses its
// own data. The folder of the socket is that of the other server, or of a line to it.
func (s *Server) Follow(t testing.TB, socket string) {
	t.Helper()
	<-s.daemon.Process.Done()
	err := os.RemoveAll(s.daemon.Data())
	if err == nil {
		err = s.follow(socket)
	}
	if err != nil {
		t.Fatalf("postgrestest: follow: %v", err)
	}
}

func (s *Server) follow(socket string) error {
	err := s.daemon.Run("pg_basebackup", "--pgdata", s.daemon.Data(), "--host", socket, "--username=postgres",
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--wal-method=stream")
	if err != nil {
		return err
	}
	return s.serve()
}

// Promote makes a replica a server that accepts writes, and returns when it does.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := s.daemon.Run("pg_ctl", "promote", "--pgdata", s.daemon.Data(), "--wait"); err != nil {
		t.Fatalf("postgrestest: promote: %v", err)
	}
}

// Dir returns the folder with the socket.
func (s *Server) Dir() string { return s.daemon.Dir }

// PIDs returns the processes of the server, the one that has started the others first.
func (s *Server) PIDs() []int { return append([]int{s.daemon.Process.PID()}, s.children()...) }

// children returns the processes that the server has started.
func (s *Server) children() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	parent := strconv.Itoa(s.daemon.Process.PID())
	for _, path := range all {
		fields := statFields(path)
		if len(fields) > 1 && fields[1] == parent {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// statFields returns what proc(5) gives for a process after its name: the state, the parent, and
// so on. It returns nothing if the process has ended.
func statFields(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

func isZombie(pid int) bool {
	fields := statFields(fmt.Sprintf("/proc/%d/stat", pid))
	return len(fields) == 0 || fields[0] == "Z"
}
