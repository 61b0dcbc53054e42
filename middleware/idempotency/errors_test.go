package idempotency_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func TestErrors_ofRecords(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := error(&idempotency.RecordError{Reason: "r", Err: cause})
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "idempotency: the record cannot be read: r: cause")
	require.EqualError(t, &idempotency.RecordError{Reason: "r"}, "idempotency: the record cannot be read: r")
	require.False(t, guard.Ran(err))
}

func TestErrors_ofKeys(t *testing.T) {
	t.Parallel()
	err := error(&idempotency.KeyError{From: "header A", Reason: "is odd"})
	require.EqualError(t, err, "idempotency: header A is odd")
	require.NotErrorIs(t, err, idempotency.ErrNoKey)
	require.ErrorIs(t, &idempotency.KeyError{Missing: true}, idempotency.ErrNoKey)
	require.False(t, guard.Ran(err))
}

func TestKeep_String(t *testing.T) {
	t.Parallel()
	require.Equal(t, "nothing answer tombstone",
		fmt.Sprint(idempotency.KeepNothing, " ", idempotency.KeepAnswer, " ", idempotency.KeepTombstone))
}
