package guardscheduler_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
)

func TestKeys_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	site, store := newSchedulerSite(t), adaptertest.NewKeyStore()
	missed := make(chan error, 100)
	opts := &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
		if err != nil {
			missed <- err
		}
	}}
	start := func() *guardscheduler.Scheduler {
		s, err := guardscheduler.New(store.NewGuard(t), site.conn(), opts, guardscheduler.WithStartDeadline(time.Second))
		require.NoError(t, err)
		_, err = s.Register("@every 1s", asynq.NewTask("report", nil))
		require.NoError(t, err)
		require.NoError(t, s.Start())
		return s
	}
	s := start()
	site.enqueued("default", 1)
	s.Shutdown()
	time.Sleep(2500 * time.Millisecond) // no process is up for longer than the start deadline
	s = start()
	require.Error(t, <-missed)
	s.Shutdown()
	store.Check(t, "../../../docs/asynq.md", "guardscheduler", map[string]string{
		"TYPE": "report", "TICK": `2\d{3}-\S+Z`, "ID": `[a-z2-7]{16}`,
	})
}
