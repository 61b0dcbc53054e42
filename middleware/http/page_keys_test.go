package guardhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	for _, opts := range [][]guardhttp.Option{
		{idempotency.WithGlobalKeys()}, {idempotency.WithGlobalKeys(), idempotency.WithMode(idempotency.Exclusive)},
	} {
		idempotent, err := guardhttp.New(store.NewGuard(t), guardhttp.IdempotencyKey, opts...)
		require.NoError(t, err)
		handler := idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code)
	}
	store.Check(t, "../../docs/http.md", "guardhttp", map[string]string{"HASH": `[\w-]+`})
}
