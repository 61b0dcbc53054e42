package doctor

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// checkScripts reports a proxy that routes scripts by their first key, and a service that parses
// scripts. The Locker finds out which they are, and works there.
func (s *Server) checkScripts(ctx context.Context, client redis.UniversalClient, c Config) {
	l := single.New(client, c.Plain...)
	_ = tryLease(ctx, l, driver.JoinNamespace(c.Namespace, scratch+"-"+rand.Text()))
	for _, warning := range l.Warnings(ctx) {
		_, text, _ := strings.Cut(warning.Error(), ": ")
		if !strings.Contains(text, "maxmemory-policy") { // checkMemory reports that
			s.add("scripts", Note, "%s", text)
		}
	}
}
