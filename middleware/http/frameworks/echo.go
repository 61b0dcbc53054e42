package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Echo makes an echo middleware out of one of guardhttp. echo answers the error of a handler after
// all middleware has returned, when the answer has been recorded. So Echo has it answered at once.
// Do not use echo.WrapMiddleware: with it, a handler that has failed cannot be told from one that
// has written nothing, so neither answer is kept.
func Echo(idempotent func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, response := c.Request(), c.Response()
			defer func() {
				c.SetRequest(request)
				c.SetResponse(response)
			}()
			idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(response, request)
			return nil
		}
	}
}
