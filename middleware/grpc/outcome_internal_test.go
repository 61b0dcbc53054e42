package guardgrpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// The names of results are those of the package idempotent, and so are the numbers of modes and of
// what is kept.
func TestResults_areThoseOfThePackageIdempotent(t *testing.T) {
	t.Parallel()
	for mine, shared := range map[Result]idempotent.Result{
		ResultUntouched: idempotent.Untouched, ResultRan: idempotent.Ran, ResultReplayed: idempotent.Replayed,
		ResultInFlight: idempotent.InFlight, ResultDone: idempotent.Done, ResultNotReplayable: idempotent.NotReplayable,
		ResultMismatch: idempotent.Mismatch, ResultKeyMissing: idempotent.KeyMissing, ResultKeyInvalid: idempotent.KeyInvalid,
		ResultBodyInvalid: idempotent.BodyInvalid, ResultRefused: idempotent.Refused,
		ResultUnavailable: idempotent.Unavailable, ResultDegraded: idempotent.Degraded, ResultCanceled: idempotent.Canceled,
	} {
		require.Equal(t, string(shared), string(mine))
	}
	for mine, shared := range map[Mode]idempotent.Mode{
		Replay: idempotent.Replay, Reject: idempotent.Reject, Exclusive: idempotent.Exclusive,
	} {
		require.EqualValues(t, shared, mine)
	}
	for mine, shared := range map[Keep]idempotent.Keep{
		KeepNothing: idempotent.KeepNothing, KeepAnswer: idempotent.KeepAnswer, KeepTombstone: idempotent.KeepTombstone,
	} {
		require.EqualValues(t, shared, mine)
		require.Equal(t, shared.String(), mine.String())
	}
}
