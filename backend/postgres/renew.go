package postgres

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/sqlstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A renewal is a claim in the statement that renews several.
type renewal struct {
	I       int    `json:"i"`
	Key     []byte `json:"key"`
	ID      string `json:"id"`
	Fence   uint64 `json:"fence"`
	Reserve int    `json:"reserve"`
	TTL     int64  `json:"ttl"`
}

// Renew implements sqlstore.Dialect, by one statement, or by two if not all claims are renewed.
func (d *dialect) Renew(ctx context.Context, claims []driver.Claim) ([]sqlstore.Renewal, error) {
	renewals := make([]renewal, len(claims))
	shared := false
	for i, c := range claims {
		renewals[i] = renewal{i, []byte(c.Key), c.ID, c.Fence, max(c.Fences.Reserve, 0), sqlstore.Micros(c.TTL)}
		shared = shared || c.MaxHolders > 1
	}
	answers := make([]sqlstore.Renewal, len(claims))
	text := toJSON(renewals)
	all, err := false, error(nil)
	if !shared {
		all, err = d.renewAll(ctx, text, len(claims))
	}
	if err == nil && !all {
		err = d.query(ctx, func(scan sqlstore.ScanFunc) error {
			var i int
			var a sqlstore.Renewal
			err := scan(&i, &a.Held, &a.Again)
			if err == nil {
				answers[i] = a
			}
			return err
		}, d.sql("renew_batch"), text)
	}
	if err != nil && !isRace(err) {
		return nil, err
	}
	for i := range answers {
		switch {
		case err != nil:
			answers[i] = sqlstore.Renewal{Again: true}
		case all:
			answers[i] = sqlstore.Renewal{Held: true}
		}
	}
	return answers, nil
}

// renewAll renews n claims in JSON, and reports whether it has renewed all of them. It takes one
// round trip on each connection. A statement with arguments, or with an answer that is read, takes
// another one on a connection that has not run it before: drivers prepare it. On a slow link, that
// would cost the lease.
func (d *dialect) renewAll(ctx context.Context, claims string, n int) (bool, error) {
	// In hexadecimal, it means the same whatever the settings of the session are.
	literal := "convert_from(decode('" + hex.EncodeToString([]byte(claims)) + "', 'hex'), 'UTF8')"
	statement := strings.Replace(d.sql("renew_batch"), "$1", literal, 1)
	result, err := d.db.ExecContext(ctx, statement+" WHERE p.key IS NOT NULL")
	if err != nil {
		return false, err
	}
	renewed, err := result.RowsAffected()
	return err == nil && renewed == int64(n), nil // a driver may not count rows
}
