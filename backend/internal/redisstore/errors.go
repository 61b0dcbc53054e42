package redisstore

import (
	"errors"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// error returns the error of a call as a *driver.StoreError.
func (s *Store) error(c *Call, err error) error {
	if s.router != nil {
		s.router.reloadSlotsOn(err)
	}
	kind := rediserr.KindOf(err)
	switch {
	case isShortOfAcks(err):
		kind = driver.KindNoReplicas
	case errors.Is(err, ErrAnswer):
		kind = driver.KindProtocol
	}
	if refusesLua(err) {
		kind, err = driver.KindUnsupported, luaRefused{err}
	}
	return &driver.StoreError{Backend: s.backend, Op: c.Op, Key: c.Key, Addr: s.addr, Kind: kind, Err: err}
}
