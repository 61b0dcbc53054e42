package frameworks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
)

// What gin's handlers do to their writer is in the replay: gin sends the last status, and the
// header as it is with the first byte. What a middleware in front sees is gin's own writer.
func TestGin_answers(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	var status, size int
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		status, size = c.Writer.Status(), c.Writer.Size()
	}, frameworks.Gin(newMiddleware(t)))
	runs := 0
	for name, h := range map[string]gin.HandlerFunc{
		"json":        func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"id": 1}) },
		"last-status": func(c *gin.Context) { c.Status(http.StatusAccepted); c.String(http.StatusNotFound, "none") },
		"abort":       func(c *gin.Context) { c.Header("X-Why", "busy"); c.AbortWithStatus(http.StatusConflict) },
		"status":      func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"reader": func(c *gin.Context) {
			c.DataFromReader(http.StatusOK, 4, "text/csv", strings.NewReader("a,b\n"), map[string]string{"X-Why": "file"})
		},
		"redirect": func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/elsewhere") },
		"nothing":  func(*gin.Context) {},
		"error answered": func(c *gin.Context) {
			_ = c.Error(errShop)
			c.JSON(http.StatusUnprocessableEntity, gin.H{"message": "no"})
		},
	} {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		engine.POST(path, func(c *gin.Context) { runs++; h(c) })
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(engine)
			defer server.Close()
			client := server.Client()
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			runs = 0
			var answers [2]reply
			for i := range answers {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, nil)
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", "k")
				response, err := client.Do(r)
				require.NoError(t, err)
				all, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				answers[i] = reply{status: response.StatusCode, header: response.Header, body: string(all)}
				require.Equal(t, response.StatusCode, status)
				require.Len(t, all, max(0, size))
			}
			require.Equal(t, 1, runs)
			require.Equal(t, "true", answers[1].header.Get("Idempotency-Replayed"))
			require.Equal(t, answers[0].status, answers[1].status)
			require.Equal(t, answers[0].body, answers[1].body)
			for _, name := range []string{"Content-Type", "Location", "X-Why"} {
				require.Equal(t, answers[0].header[name], answers[1].header[name], name)
			}
		})
	}
}
