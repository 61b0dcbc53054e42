package clocktest_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/clocktest"
)

// A teller is a process that tells the time.
type teller struct {
	t   *testing.T
	in  io.Writer
	out io.Reader
}

func startTeller(t *testing.T, program string, env []string) teller {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	return teller{t, in, out}
}

// reads returns by how much its wall clock is off from ours, and how long it has run by its monotonic clock.
func (p teller) reads() (off, ran time.Duration) {
	p.t.Helper()
	asked := time.Now()
	_, err := fmt.Fprintln(p.in)
	require.NoError(p.t, err)
	var wall int64
	_, err = fmt.Fscan(p.out, &wall, (*int64)(&ran))
	require.NoError(p.t, err)
	return time.Unix(0, wall).Sub(asked.Round(0)), ran
}

// tellers are programs that print wall and monotonic time, each with what its clock is moved by.
func tellers(t *testing.T, clock *clocktest.Clock) map[string]teller {
	t.Helper()
	inGo, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/now")
	require.NoError(t, err)
	preload, err := clock.Preload(t.Context(), t.TempDir())
	require.NoError(t, err)
	inC := t.TempDir() + "/now"
	compiler, err := clocktest.Compiler()
	require.NoError(t, err)
	out, err := exec.Command(compiler, "-o", inC, "testdata/now.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return map[string]teller{"Go": startTeller(t, inGo, clock.Env()), "C": startTeller(t, inC, preload)}
}

func TestClock_movesTheWallClockAndNotTheMonotonicOne(t *testing.T) {
	const quick = 30 * time.Second // between our look at the clock and the process', on a machine that has other things to do
	clock := clocktest.New(t)
	for language, process := range tellers(t, clock) {
		t.Run(language, func(t *testing.T) {
			off, _ := process.reads()
			require.Less(t, off.Abs(), quick, "it is right until it is moved")
			for _, jump := range []time.Duration{2 * time.Hour, -5 * time.Hour, 3 * time.Hour} {
				_, before := process.reads()
				clock.Jump(jump)
				off, after := process.reads()
				require.Less(t, (off - clock.Shift()).Abs(), quick)
				require.GreaterOrEqual(t, after, before)
				require.Less(t, after-before, quick)
			}
			require.Zero(t, clock.Shift())
		})
	}
}

func TestClock_isNothingToAGoProgramThatIsStartedWithoutIt(t *testing.T) {
	program, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/now")
	require.NoError(t, err)
	off, _ := startTeller(t, program, nil).reads()
	require.Less(t, off.Abs(), 30*time.Second)
}

func TestPreload_saysThatThereIsNoCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	_, err := clocktest.New(t).Preload(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "clocktest: no C compiler")
	require.ErrorIs(t, err, exec.ErrNotFound)
}

func TestBuildGo_saysWhatDoesNotCompile(t *testing.T) {
	_, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/nothing")
	require.ErrorContains(t, err, "testdata/nothing")
}
