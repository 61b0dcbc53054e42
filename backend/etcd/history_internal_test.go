package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistory_noticesThatTheRevisionWentBack(t *testing.T) {
	var h history
	h.note(h.now(), 10)
	before := h.now()
	h.note(before, 12)
	h.note(before, 11) // an answer that was overtaken
	from, to := h.wentBack()
	require.Equal(t, []int64{0, 0}, []int64{from, to})
	first := h.until()
	require.NoError(t, first.Err())
	before = h.now()
	h.note(before, 3)
	h.note(before, 4) // notes the same restore
	from, to = h.wentBack()
	require.Equal(t, []int64{12, 3}, []int64{from, to})
	require.Error(t, first.Err())
	require.NoError(t, h.until().Err())
	require.EqualValues(t, 4, h.now())
}
