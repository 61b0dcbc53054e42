package etcd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// A deploy keeps fewer entries than the one before: the surplus goes, in as many transactions as it
// needs.
func TestAppend_toALogThatWasLonger(t *testing.T) {
	t.Parallel()
	const surplus, writers = 600, 10
	l := etcd.New(connect(t, etcdtest.Start(t)))
	entry := func(i int) driver.Entry { return driver.Entry{At: int64(i + 1), Record: fmt.Append(nil, i)} }
	var filling sync.WaitGroup
	for w := range writers {
		filling.Go(func() {
			for i := w; i < surplus; i += writers {
				if err := l.Append(within(t, 30*time.Second), "log", entry(i), 2*surplus); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
	require.NoError(t, l.Append(within(t, 30*time.Second), "log", entry(surplus), 2))
	logs, err := l.EntriesOf(within(t, 30*time.Second), []string{"log"}, surplus)
	require.NoError(t, err)
	require.Equal(t, [][]driver.Entry{{entry(surplus), entry(surplus - 1)}}, logs)
}
