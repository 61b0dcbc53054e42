package guardwatermill

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// Whatever a store returns, decode returns messages that encode to the same bytes, or an error.
func FuzzDecode(f *testing.F) {
	m := message.NewMessage("uuid", message.Payload("payload"))
	m.Metadata.Set("name", "value")
	for _, msgs := range [][]*message.Message{nil, {m}, {m, m}} {
		record, err := encode(msgs, 1000)
		require.NoError(f, err)
		f.Add(record)
		f.Add(record[:len(record)-1])
		f.Add(append(record, 0))
	}
	f.Add([]byte("onerun watermill 2\n\x00"))
	f.Add([]byte(recordBegin + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, record []byte) {
		msgs, err := decode(record)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		again, err := encode(msgs, 1<<30)
		require.NoError(t, err)
		back, err := decode(again)
		require.NoError(t, err)
		require.Len(t, back, len(msgs))
		for i := range msgs {
			require.True(t, msgs[i].Equals(back[i]))
		}
	})
}
