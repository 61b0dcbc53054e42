package postgres

import (
	"context"

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

// Renew implements sqlstore.Dialect, by one statement.
func (d *dialect) Renew(ctx context.Context, claims []driver.Claim) ([]sqlstore.Renewal, error) {
	renewals := make([]renewal, len(claims))
	for i, c := range claims {
		renewals[i] = renewal{i, []byte(c.Key), c.ID, c.Fence, max(c.Fences.Reserve, 0), sqlstore.Micros(c.TTL)}
	}
	answers := make([]sqlstore.Renewal, len(claims))
	err := d.query(ctx, func(scan sqlstore.ScanFunc) error {
		var i int
		var a sqlstore.Renewal
		err := scan(&i, &a.Held, &a.Again)
		if err == nil {
			answers[i] = a
		}
		return err
	}, d.sql("renew_batch"), toJSON(renewals))
	if isRace(err) {
		for i := range answers {
			answers[i] = sqlstore.Renewal{Again: true}
		}
		err = nil
	}
	return answers, err
}
