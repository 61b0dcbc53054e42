package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A serverError is an error with a SQLSTATE, as pgx and lib/pq have it.
type serverError string

func (serverError) Error() string      { return "the server refuses" }
func (e serverError) SQLState() string { return string(e) }

// Each SQLSTATE of a server that refuses has a kind that says so: it is not away.
func TestKindOf_aServerThatRefuses(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]driver.StoreErrorKind{
		"53100": driver.KindNotPersisted, "58030": driver.KindNotPersisted, "53200": driver.KindOOM, "53300": driver.KindLimit,
		"25006": driver.KindReadOnly, "42501": driver.KindAuth, "28000": driver.KindAuth, "28P01": driver.KindAuth,
		"3D000": driver.KindSettings, "3F000": driver.KindSettings, "42P01": driver.KindSettings, "42703": driver.KindSettings,
		"42601": driver.KindUnsupported, "42804": driver.KindUnsupported, "0A000": driver.KindUnsupported, "26000": driver.KindUnsupported,
		"53400": driver.KindOther, "54000": driver.KindOther, "XX001": driver.KindOther, "23505": driver.KindOther,
		"08006": driver.KindConnection, "57P01": driver.KindConnection, "57P02": driver.KindConnection, "57P03": driver.KindLoading,
		"57014": driver.KindTimeout, "55P03": driver.KindTimeout,
	} {
		kind, err := (&dialect{}).Explain(driver.OpAcquire, fmt.Errorf("wrapped: %w", serverError(code)))
		require.Equal(t, want, kind, code)
		var state interface{ SQLState() string }
		require.ErrorAs(t, err, &state, "what the server has answered is found in the error")
		require.Equal(t, code, state.SQLState())
	}
}
