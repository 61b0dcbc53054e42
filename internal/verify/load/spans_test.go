package load_test

import (
	"math/bits"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A spans counts durations by size, each doubling in sixteen classes: millions of them take no
// memory that would be mistaken for the load's. It is safe for concurrent use.
type spans struct {
	counts [64 * classes]atomic.Int64
}

const classes = 16

// class returns that of d.
func class(d time.Duration) int {
	n := uint64(max(d, classes))
	// so that the five highest bits remain, of which the highest is always 1
	shift := bits.Len64(n) - 5
	return shift*classes + int(n>>shift) - classes
}

// least returns the shortest duration of a class.
func least(class int) time.Duration {
	return time.Duration(classes+class%classes) << (class / classes)
}

func (s *spans) add(d time.Duration) { s.counts[class(d)].Add(1) }

// percentile returns the duration under which so many of a hundred are, a sixteenth of it too
// little at most.
func (s *spans) percentile(p float64) time.Duration {
	var all, seen int64
	for i := range s.counts {
		all += s.counts[i].Load()
	}
	for i := range s.counts {
		if seen += s.counts[i].Load(); all > 0 && float64(seen) >= p/100*float64(all) {
			return least(i)
		}
	}
	return 0
}

func TestSpans_areCountedBySize(t *testing.T) {
	var s spans
	require.Zero(t, s.percentile(50))
	for d := range 10_000 {
		s.add(time.Duration(d) * time.Microsecond)
	}
	require.InEpsilon(t, 5*time.Millisecond, s.percentile(50), 1.0/classes)
	require.InEpsilon(t, 9900*time.Microsecond, s.percentile(99), 1.0/classes)
	for _, d := range []time.Duration{16, 17, 31, 32, 33, time.Second, time.Hour} {
		require.LessOrEqual(t, least(class(d)), d)
		require.Greater(t, least(class(d)+1), d)
	}
}
