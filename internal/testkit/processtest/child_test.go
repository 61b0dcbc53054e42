package processtest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

func startEcho(t testing.TB) *processtest.Child {
	t.Helper()
	c := processtest.Self(t, childEnv+"=echo")
	c.Says("ready")
	return c
}

func TestChild_saysLines(t *testing.T) {
	c := startEcho(t)
	for _, line := range []string{"one", "two words", "three"} {
		c.Tell(line)
	}
	require.Equal(t, "one", c.Next())
	require.Equal(t, "ree", c.Says("th"), "past others")
	long := strings.Repeat("long", 50_000)
	c.Tell("a line  " + long + " ")
	require.Equal(t, long, c.Says("a line"))
	require.Equal(t, "ready\none\ntwo words\nthree\na line  "+long+" \n", c.Said())
	c.CloseInput()
	c.Ends()
}

// It says more than a pipe holds, and more than a reader of lines takes.
func TestChild_neverWaitsForAListener(t *testing.T) {
	c := startEcho(t)
	for range 10_000 {
		c.Tell("a line of thirty-two characters")
	}
	c.CloseInput()
	c.Ends()
	require.Equal(t, 10_000, strings.Count(c.Said(), "a line of thirty-two characters\n"))
	for range 10_000 {
		require.Equal(t, "a line of thirty-two characters", c.Next())
	}
}

func TestChild_standsStillWhileItIsFrozen(t *testing.T) {
	c := startEcho(t)
	require.NoError(t, c.Freeze())
	c.Tell("hello")
	require.Never(t, func() bool { return strings.Contains(c.Said(), "hello") }, 50*time.Millisecond, 5*time.Millisecond)
	require.NoError(t, c.Thaw())
	require.Equal(t, "hello", c.Next())
}

func TestChild_isGoneWhenTheTestEnds(t *testing.T) {
	var c *processtest.Child
	t.Run("inner", func(t *testing.T) {
		c = startEcho(t)
		require.NoError(t, c.Freeze())
	})
	require.True(t, c.Ended())
	require.EqualError(t, c.Wait(), "signal: killed")
}

// A spectator is a test that may fail.
type spectator struct {
	testing.TB
	failed   bool
	told     string
	cleanups []func()
}

func (s *spectator) Helper()                         {}
func (s *spectator) Cleanup(f func())                { s.cleanups = append(s.cleanups, f) }
func (s *spectator) Failed() bool                    { return s.failed }
func (s *spectator) Logf(format string, args ...any) { s.told += fmt.Sprintf(format, args...) }

func (s *spectator) Errorf(format string, args ...any) {
	s.failed = true
	s.Logf(format, args...)
}

func (s *spectator) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func TestChild_failsTheTest(t *testing.T) {
	for name, row := range map[string]struct {
		test func(c *processtest.Child)
		told []string
	}{
		"says that it fails": {func(c *processtest.Child) {
			c.Tell("fails to do it")
			c.Says("done")
		}, []string{" fails to do it"}},
		"ends without saying it": {func(c *processtest.Child) {
			c.Tell("wrong: it is")
			c.Tell("end")
			c.Says("done")
		}, []string{`has ended without saying "done": exit status 3`, "wrote to standard error:\nwrong: it is\n"}},
		"ends badly": {func(c *processtest.Child) {
			c.Tell("end")
			c.Ends()
		}, []string{"has ended: exit status 3"}},
		"has gone": {func(c *processtest.Child) {
			c.Kill()
			c.Tell("hello")
		}, []string{`"hello": write |1: file already closed`, `said "ready" at last`}},
		"has a data race": {func(c *processtest.Child) {
			c.Tell("wrong WARNING: DATA RACE")
			c.CloseInput()
			c.Ends()
		}, []string{"the race detector has found a race", "wrong WARNING: DATA RACE\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &spectator{TB: t}
			var test sync.WaitGroup
			test.Go(func() { row.test(startEcho(s)) })
			test.Wait()
			s.cleanups[0]()
			require.True(t, s.failed)
			for _, text := range row.told {
				require.Contains(t, s.told, text)
			}
		})
	}
}
