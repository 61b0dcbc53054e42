package guardriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

func TestKeys_ofAJob(t *testing.T) {
	t.Parallel()
	job := &rivertype.JobRow{ID: 7, Kind: "charge", EncodedArgs: []byte(`{"order":{"customer":42}}`), Metadata: []byte(`{"tenant":"a"}`)}
	for want, key := range map[string]guardriver.KeyFunc{
		"kind":                           guardriver.FromKind(),
		`args:{"order":{"customer":42}}`: guardriver.FromArgs(),
		"42":                             guardriver.FromJSON("order", "customer"),
		"a":                              guardriver.FromMetadata("tenant"),
		"id:7":                           guardriver.FromJobID(),
	} {
		got, err := key(t.Context(), job)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// A job without a usable key does not run. Its error names the field, and costs one attempt, so
// that River keeps the job.
func TestKeys_thatAreMissing(t *testing.T) {
	t.Parallel()
	own := func(context.Context, *rivertype.JobRow) (string, error) { return "", nil }
	failing := func(context.Context, *rivertype.JobRow) (string, error) { return "", errWorker }
	for text, key := range map[string]guardriver.KeyFunc{
		`job "charge": JSON field customer of the args is empty`:     guardriver.FromJSON("customer"),
		`job "charge": JSON field order.id of the args is missing`:   guardriver.FromJSON("order", "id"),
		`job "charge": JSON field tenant of the metadata is missing`: guardriver.FromMetadata("tenant"),
		`job "charge": the key is empty`:                             own,
		`job "charge": part 2 of the key is empty`:                   guardriver.Join(guardriver.FromKind(), own),
		`key of job 1 (charge): the card was refused`:                failing,
	} {
		s := newStand(t)
		for _, m := range []rivertype.WorkerMiddleware{
			s.middleware(t, key), s.middleware(t, guardriver.FromKind(), guardriver.WithOnce(time.Hour, key)),
		} {
			job := charge(1, "")
			job.EncodedArgs = []byte(`{"customer":"","order":{}}`)
			err := m.Work(t.Context(), job, mustNotRun(t))
			require.ErrorContains(t, err, text)
			require.False(t, errors.Is(err, &rivertype.JobSnoozeError{}) || errors.Is(err, &rivertype.JobCancelError{}))
			require.ErrorIs(t, s.outcomes[0].Refused, err)
			require.Equal(t, []string{"refused"}, s.results())
		}
	}
}

func TestKeys_withoutANameOrAFunction(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "guardriver: FromJSON: the name must not be empty", func() { guardriver.FromJSON("a", " ") })
	require.PanicsWithValue(t, "guardriver: FromMetadata: the name must not be empty", func() { guardriver.FromMetadata("") })
	require.PanicsWithValue(t, "guardriver: Join: function 2 is nil", func() { guardriver.Join(guardriver.FromKind(), nil) })
	require.PanicsWithValue(t, "guardriver: Optional: the function must not be nil", func() { guardriver.Optional(nil) })
}

// Two texts of which one would be taken for a repeat of the other.
func TestKeys_noTwoTextsAreOneKey(t *testing.T) {
	t.Parallel()
	inArgs := func(text string) *rivertype.JobRow { return charge(1, text) }
	inMetadata := func(text string) *rivertype.JobRow {
		return &rivertype.JobRow{Metadata: []byte(`{"customer":"` + text + `"}`)}
	}
	for name, c := range map[string]struct {
		key guardriver.KeyFunc
		job func(text string) *rivertype.JobRow
	}{
		"FromJSON":     {guardriver.FromJSON("customer"), inArgs},
		"FromArgs":     {guardriver.FromArgs(), inArgs},
		"FromMetadata": {guardriver.FromMetadata("customer"), inMetadata},
		"Join":         {guardriver.Join(guardriver.FromKind(), guardriver.FromJSON("customer")), inArgs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Distinct(t, adaptertest.JSONStrings(), func(text string) (string, error) { return c.key(t.Context(), c.job(text)) })
		})
	}
}

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	m, err := guardriver.New(store.NewGuard(t), guardriver.FromKind(), guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
	require.NoError(t, err)
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)))
	store.Check(t, "../../docs/river.md", "guardriver", map[string]string{"HASH": `[\w-]+`})
	require.Len(t, store.Taken(), 2)
}
