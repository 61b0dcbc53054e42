package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"
)

const (
	// thinking is how long a server looks at the stock before it writes it back.
	thinking = 2 * time.Millisecond
	// maxThinking is how long an order can ask it to.
	maxThinking = 10 * time.Second
)

var errOrder = errors.New(`the body must be like {"size":"M","think":"3s"}: a size of S, M or L, ` +
	`and, if you like, how long the server is to think, up to 10s`)

// An order is what a user asks for.
type order struct {
	user, size string
	think      time.Duration // so that there is time to try by hand what happens meanwhile
}

// readOrder returns what the request asks for, or errOrder.
func readOrder(r *http.Request) (order, error) {
	body := struct{ Size, Think string }{Think: thinking.String()}
	malformed := json.NewDecoder(r.Body).Decode(&body)
	think, err := time.ParseDuration(body.Think)
	if malformed != nil || err != nil || think < 0 || think > maxThinking || !slices.Contains([]string{"S", "M", "L"}, body.Size) {
		return order{}, errOrder
	}
	return order{user: r.PathValue("user"), size: body.Size, think: think}, nil
}
