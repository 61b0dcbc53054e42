package reentrant_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestCarryOwner_aServiceThatIsCalledJoinsOnlyIfBothSidesAsk(t *testing.T) {
	server := redistest.Start(t)
	here, err := guard.New(reentrant.New(server.Client(t)))
	require.NoError(t, err)
	there, err := guard.New(reentrant.New(server.Client(t)))
	require.NoError(t, err)
	fences := make(chan uint64, 1)
	for _, believes := range []bool{true, false} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var opts []guard.Option
			if believes {
				opts = append(opts, guard.WithOwnerFrom(r.Header.Get))
			}
			err := there.Do(r.Context(), "k", func(ctx context.Context) error {
				fences <- guard.Fence(ctx)
				return nil
			}, opts...)
			if errors.Is(err, guard.ErrBusy) {
				w.WriteHeader(http.StatusConflict)
			}
		}))
		for _, carries := range []bool{true, false} {
			require.NoError(t, here.Do(t.Context(), "k", func(ctx context.Context) error {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL, nil)
				require.NoError(t, err)
				if carries {
					guard.CarryOwner(ctx, request.Header.Set)
				}
				answer, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				if !carries || !believes {
					require.Equal(t, http.StatusConflict, answer.StatusCode)
					return nil
				}
				require.Equal(t, http.StatusOK, answer.StatusCode)
				require.Equal(t, guard.Fence(ctx), <-fences)
				return nil
			}))
		}
		service.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, here.Close(t.Context()))
	require.NoError(t, there.Close(t.Context()))
}
