// Coupon is a shop that gives away a hundred coupons: three server processes behind HTTP, one
// stock in a database, and a thousand users who all claim at once, some of them twice.
// In the folder internal/verify/demo:
//
//	go run ./coupon                        exactly 100 coupons are claimed, none twice
//	go run ./coupon -guard=off             the servers conflict, and far more are claimed
//	go run ./coupon -serve 127.0.0.1:8080  one server without the crowd, for curl
//	go run ./coupon -ui 127.0.0.1:7380     with the page for operators, until Ctrl-C
//	go run -tags trace ./coupon -trace     with spans on stdout, metrics and logs
//
// A claim is an idempotent request: its Idempotency-Key says that a second click is the same
// claim, which is answered as the first one was.
//
// The servers read the stock, decide, and write it back, as programs do. With the guard, each read
// registers the fence of its lease in the database. The shop freezes one of the three servers
// between its read and its write, for longer than its lease lasts. By then another holder has read
// the stock under a higher fence, so the database refuses the write.
//
// It needs nothing but Go: Redis is inside the program (or -redis host:port), and the database is a
// file of bbolt, which has transactions. The table at the end is read back from that database. The
// leases are kept in one Redis, or, with -backend redlock, in a majority of five; -backend
// reentrant is for those who have Redisson beside it.
//
// What matters is in claim.go: how the Guard is made, the middleware, and the call of Guard.Do.
// The statements that refuse a stale holder are in database.go. What -trace needs is in
// telemetry.go, which the tag trace adds.
package main

import (
	"os"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

const about = `
Coupon has a thousand users claim a hundred coupons at once, from three servers.

  coupon                         exactly a hundred coupons are claimed, and nobody has two
  coupon -guard=off              the servers get in each other's way, and far more are claimed
  coupon -ui 127.0.0.1:7380      the same, with the page for operators, until Ctrl-C
  coupon -trace                  (built with -tags trace) the same, with spans on standard output, metrics for Prometheus, and logs
  coupon -serve 127.0.0.1:8080   one server and no crowd, to be tried by hand:

  curl -i -H 'Idempotency-Key: k1' -d '{"size":"M"}' http://127.0.0.1:8080/claim/alice`

func main() {
	var s server
	if ctx, parent, ok := stage.Join(&s); ok { // we are one of the three
		os.Exit(s.main(ctx, parent))
	}
	var shop shop
	os.Exit(stage.Example{Name: "coupon", About: about, Buckets: []string{bucketStock, bucketClaims, bucketRefused}, Flags: shop.flags, Check: shop.check, Play: shop.play}.Main(os.Args[1:]))
}
