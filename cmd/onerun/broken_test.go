package main_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// cleansUp is a shell command that takes a while to end after SIGTERM.
const cleansUp = `trap 'echo >told; sleep 0.3; echo >cleaned; exit' TERM
echo $$ >pid; ` + forever

// An operator has broken the lease, so the key stays taken for a while. The command has time to
// clean up, and it is dead before another run begins.
func TestRun_givesTheGracePeriodWhenAnOperatorBreaksTheLease(t *testing.T) {
	for name, c := range map[string]struct{ servers, flags []string }{
		"single":         {},
		"shared":         {nil, []string{"--limit=2"}},
		"several keys":   {nil, []string{"other"}},
		"an owner":       {[]string{"--backend=reentrant"}, []string{"--owner=me"}},
		"in a namespace": {[]string{"--namespace=shop"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			run, command := []string{"run", "--ttl=9s", "--grace=3s"}, []string{"k", "--", "sh", "-c", cleansUp}
			args := slices.Concat(c.servers, run, c.flags, command)
			e := s.start(args...)
			pid := s.pid("pid")
			s.breaks(append(c.servers, "break", "k", "--by=alice", "--why=it hangs")...)
			require.Equal(t, 124, e.wait())
			require.Equal(t, "\n", s.read("cleaned"))
			require.False(t, alive(pid))
			require.Contains(t, e.errs.String(), `lease on "k" was lost (not_held), so the command was `+
				`ended: broken by alice: it hangs`)
			code, out, _ := s.run(append(c.servers, "show", "k")...)
			require.Zero(t, code)
			require.Contains(t, out, "k is kept", "the command is dead before the key is free")
			require.Contains(t, out, "; the broken run may go on until its next renewal\n")
			require.Regexp(t, `(?m)^  changed +break by alice, 20.* UTC\n  why +it hangs\n  was +\S+ pid \d+$`, out)
		})
	}
}

func (s *site) breaks(args ...string) {
	s.t.Helper()
	code, out, errs := s.run(args...)
	require.Zero(s.t, code, "%s%s", out, errs)
	require.Contains(s.t, out, "broken: k was held by")
}

func TestRun_givesTheGracePeriodOnAQuorum(t *testing.T) {
	s := newSite(t)
	var urls []string
	nodes := redistest.StartN(t, 3)
	for _, node := range nodes {
		urls = append(urls, "redis://"+node.Addr())
	}
	quorum := []string{"--backend=redlock", "--redis=" + strings.Join(urls, ",")}
	run := []string{"run", "--ttl=9s", "--grace=3s", "k", "--", "sh", "-c", cleansUp}
	e := s.start(append(quorum, run...)...)
	pid := s.pid("pid")
	nodes[2].Kill()
	s.breaks(append(quorum, "break", "k", "--why=it hangs")...)
	require.Equal(t, 124, e.wait())
	require.Equal(t, "\n", s.read("cleaned"))
	require.False(t, alive(pid))
}

// What ignores SIGTERM is killed while the key is still taken: two never run at the same time.
func TestRun_killsWhatIgnoresThatAnOperatorHasBrokenTheLease(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "--ttl=9s", "--grace=2s", "k", "--", "sh", "-c",
		`echo $$ >pid; `+stubborn+` trap 'date +%s%N >told' TERM
`+ticking)
	pid, grandchild := s.pid("pid"), s.pid("grandchild")
	s.breaks("break", "k")
	require.Zero(t, first(s.run("run", "--wait=60s", "k", "--", "sh", "-c", "date +%s%N >second")))
	require.False(t, alive(pid))
	require.False(t, alive(grandchild))
	require.Equal(t, 124, e.wait())
	told, last := s.instant("told"), s.lastTick()
	require.True(t, last.Before(s.instant("second")), "the two never ran at the same time")
	require.Greater(t, last.Sub(told), 300*time.Millisecond, "it had its grace period")
}

// After break --now, another run may begin at once.
func TestRun_killsAtOnceWhenAnOperatorFreesTheKey(t *testing.T) {
	for name, next := range map[string][]string{
		"it is free":      nil,
		"another has it":  {"run", "--min-hold=1m", "k", "--", "true"},
		"it is held busy": {"hold", "k", "--for=1m"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			e := s.start("run", "--ttl=3s", "--grace=1s", "k", "--", "sh", "-c", cleansUp)
			pid := s.pid("pid")
			s.breaks("break", "--now", "k", "--by=alice", "--why=it hangs")
			if next != nil {
				require.Zero(t, first(s.run(next...)))
			}
			require.Equal(t, 124, e.wait())
			require.Empty(t, s.read("told"))
			require.False(t, alive(pid))
			require.Contains(t, e.errs.String(), "ended: broken by alice: it hangs")
			code, out, _ := s.run("log")
			require.Zero(t, code)
			require.Regexp(t, `(?m)^20.* UTC +alice +break-now +k +\S+ pid \d+ +it hangs$`, out)
		})
	}
}
