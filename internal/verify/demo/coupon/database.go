package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

var (
	errSoldOut = errors.New("no coupon is left")
	errHasOne  = errors.New("the user has a coupon already")
	errStale   = errors.New("the database refused a stale fence")
)

// The buckets of the database.
const (
	bucketStock   = "stock"   // a stock for each coupon
	bucketClaims  = "claims"  // claims, in their order
	bucketRefused = "refused" // refusals, in their order
)

// A stock is what is left of a coupon.
type stock struct {
	Remaining int
	Fence     uint64 // the highest that a read has registered
}

// A claim is a coupon that a user got. The database takes several claims of one user: it is the
// guard's task here that nobody has two.
type claim struct {
	User, Size, Server string
	Fence              uint64
}

// A refusal is a write that came too late: a newer holder had read the stock, and its fence was
// higher.
type refusal struct {
	User, Server      string
	Fence, StockFence uint64
}

// database is the shop's data.
type database struct{ *stage.Database }

// read registers the fence and returns how many coupons are left. It returns errStale if a newer
// holder has registered its fence. If the user cannot have a coupon, read returns errSoldOut or
// errHasOne.
func (db database) read(ctx context.Context, user string, fence uint64) (remaining int, err error) {
	var no error // why the user cannot have a coupon
	err = db.Update(ctx, func(tx *bbolt.Tx) error {
		s, err := stage.Get[stock](tx, bucketStock, coupon)
		if err != nil {
			return err
		}
		if s.Fence > fence {
			return errStale
		}
		// To read is not enough. An older holder could then still write between this read and our
		// write, and our write would undo that sale. Without a guard, all fences are 0 and nothing
		// is refused.
		s.Fence = fence
		if err := stage.Put(tx, bucketStock, coupon, s); err != nil {
			return err
		}
		claims, err := stage.All[claim](tx, bucketClaims)
		if err != nil {
			return err
		}
		remaining = s.Remaining
		switch {
		case slices.ContainsFunc(claims, func(c claim) bool { return c.User == user }):
			no = errHasOne
		case remaining <= 0:
			no = errSoldOut
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the stock: %w", err)
	case no != nil:
		return 0, no
	}
	return remaining, nil
}

// A sale is what a server writes when it gives away a coupon.
type sale struct {
	order
	server    string
	remaining int // what is left then
	fence     uint64
}

// write writes the new stock and the user's claim, both or neither. It returns errStale if the
// fence that read registered is no longer the stock's. It then writes a refusal instead.
func (db database) write(ctx context.Context, w sale) error {
	stale := false
	err := db.Update(ctx, func(tx *bbolt.Tx) error {
		s, err := stage.Get[stock](tx, bucketStock, coupon)
		if err != nil {
			return err
		}
		// The database refuses a stale holder here. The comparison and the writes are one
		// transaction. The fence must be equal, not just high enough. The database therefore also
		// refuses a write whose fence no read has registered. A holder keeps its fence, so it can
		// read and write several times.
		if stale = s.Fence != w.fence; stale {
			return stage.Append(tx, bucketRefused, refusal{w.user, w.server, w.fence, s.Fence})
		}
		s.Remaining = w.remaining
		return errors.Join(stage.Put(tx, bucketStock, coupon, s),
			stage.Append(tx, bucketClaims, claim{w.user, w.size, w.server, w.fence}))
	})
	switch {
	case err != nil:
		return fmt.Errorf("write the stock: %w", err)
	case stale:
		return errStale
	}
	return nil
}

// stock returns how many coupons are left, and the stock's fence. It is for display: nothing is
// written because of what it returns, so it registers no fence.
func (db database) stock(ctx context.Context) (remaining int, fence uint64, err error) {
	err = db.View(ctx, func(tx *bbolt.Tx) error {
		s, err := stage.Get[stock](tx, bucketStock, coupon)
		remaining, fence = s.Remaining, s.Fence
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the stock: %w", err)
	}
	return remaining, fence, nil
}

// fill puts coupons into the stock.
func (db database) fill(ctx context.Context, n int) error {
	err := db.Update(ctx, func(tx *bbolt.Tx) error { return stage.Put(tx, bucketStock, coupon, stock{Remaining: n}) })
	if err != nil {
		return fmt.Errorf("fill the stock: %w", err)
	}
	return nil
}

// books are all that the database has.
type books struct {
	stock   stock
	claims  []claim
	refused []refusal
}

// books reads all that the database has.
func (db database) books(ctx context.Context) (b books, err error) {
	err = db.View(ctx, func(tx *bbolt.Tx) (err error) {
		if b.stock, err = stage.Get[stock](tx, bucketStock, coupon); err != nil {
			return err
		}
		if b.claims, err = stage.All[claim](tx, bucketClaims); err != nil {
			return err
		}
		b.refused, err = stage.All[refusal](tx, bucketRefused)
		return err
	})
	if err != nil {
		return books{}, fmt.Errorf("read the books: %w", err)
	}
	return b, nil
}
