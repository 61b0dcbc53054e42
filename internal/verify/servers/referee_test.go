package servers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReferee_seesOverlapsAndFencesThatDoNotGrow(t *testing.T) {
	r := &referee{}
	early := time.Now()
	r.enter("k", 5, early)()
	r.enter("other", 1, time.Now())()
	time.Sleep(time.Millisecond) // so that the next claim is later
	r.enter("k", 6, time.Now())()
	require.Empty(t, r.wrong())
	r.enter("k", 4, early)()
	require.Empty(t, r.wrong(), "it was asked for before the others began")
	require.Zero(t, r.overlaps.Load())

	time.Sleep(time.Millisecond)
	leave := r.enter("k", 6, time.Now())
	require.Equal(t, []string{"k: fence 6 after 6"}, r.wrong())
	r.enter("k", 7, time.Now())()
	require.EqualValues(t, 1, r.overlaps.Load())
	leave()
}
