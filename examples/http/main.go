// Http is a service that takes payments, and a client that repeats a request until it is answered.
// However often it asks, it pays once.
//
//	go run ./examples/redis                                  a Redis, if you have none
//	go run ./examples/http -serve 127.0.0.1:8080 -lose       in a second terminal
//	go run ./examples/http -serve 127.0.0.1:8081             in a third: another replica
//	go run ./examples/http -pay 42                           in a fourth
//
// With -lose, a service takes the payment, and then cuts the connection instead of answering. So
// the client does not know whether it has paid. It asks the next replica, with the same
// Idempotency-Key, and gets the answer of the first. Leave out the middleware in handler, and it
// pays twice.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	serve := flag.String("serve", "", "the address on which to take payments")
	lose := flag.Bool("lose", false, "take payments, and do not answer")
	amount := flag.String("pay", "", "the amount to pay")
	at := flag.String("at", "http://127.0.0.1:8080,http://127.0.0.1:8081", "where to pay")
	flag.Parse()
	var err error
	if *serve != "" {
		err = run(*serve, *addr, *lose)
	} else {
		err = pay(context.Background(), strings.Split(*at, ","), *amount)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(listen, addr string, lose bool) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	g, err := guard.New(single.New(rdb), guard.WithNamespace("payments"))
	if err != nil {
		return err
	}
	defer func() { _ = g.Close(context.Background()) }()
	h, err := handler(g, lose)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("taking payments on", listener.Addr())
	return http.Serve(listener, h)
}

type accountKey struct{}

// handler returns the routes of the service.
func handler(g *guard.Guard, lose bool) (http.Handler, error) {
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(guardhttp.FromContext(accountKey{})))
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.Use(authenticate) // before the middleware: a replay must not go to another account
	if lose {
		r.Use(loseAnswers)
	}
	r.With(idempotent).Post("/payments", takePayment)
	return r, nil
}

// takePayment is as it would be without Onerun.
func takePayment(w http.ResponseWriter, r *http.Request) {
	amount, _ := io.ReadAll(r.Body) // guardhttp has read it, and bounded its size
	fmt.Printf("%s pays %s\n", r.Context().Value(accountKey{}), amount)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "paid %s, receipt %s", amount, rand.Text()[:8])
}

// authenticate believes the client. Yours does not.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, _, ok := r.BasicAuth()
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, account)))
	})
}

// loseAnswers cuts the connection after the work.
func loseAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(discard{}, r)
		panic(http.ErrAbortHandler)
	})
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// pay pays the amount once, at whichever place answers. The key belongs to the payment, so it stays
// the same from one try to the next. A client that may restart keeps it beside its order.
func pay(ctx context.Context, places []string, amount string) error {
	key := rand.Text()
	for try := range 10 {
		answer, err := ask(ctx, places[try%len(places)], amount, key)
		if err == nil {
			fmt.Println(answer)
			return nil
		}
		fmt.Println("no answer:", err)
		time.Sleep(200 * time.Millisecond)
	}
	return errors.New("nobody answers, and we may have paid: ask again later, with the same key")
}

func ask(ctx context.Context, place, amount, key string) (answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, place+"/payments", bytes.NewBufferString(amount))
	if err != nil {
		return "", err
	}
	r.SetBasicAuth("alice", "secret")
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	// 409 while the first one runs, 503 if the store is away
	if resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}
