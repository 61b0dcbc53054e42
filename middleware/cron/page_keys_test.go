package guardcron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	store := adaptertest.NewKeyStore()
	synctest.Test(t, func(t *testing.T) {
		for range 2 { // the second process catches up
			g := store.NewGuard(t)
			c := cron.New()
			jobs, err := guardcron.New(g, c, guardcron.WithCatchUp(1))
			require.NoError(t, err)
			_, err = jobs.AddFunc("report", "* * * * *", func(context.Context) error { return nil })
			require.NoError(t, err)
			c.Start()
			time.Sleep(2 * time.Minute) // virtual time
			<-c.Stop().Done()
			require.NoError(t, jobs.Close(t.Context()))
			require.NoError(t, g.Close(t.Context()))
			time.Sleep(time.Hour) // virtual time
		}
	})
	store.Check(t, "../../docs/cron.md", "guardcron", map[string]string{"JOB": "report", "TICK": `2\d{3}-\S+Z`})
}
