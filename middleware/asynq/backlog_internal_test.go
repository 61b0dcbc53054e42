package guardasynq

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBacklog_wakesTasksInTheirOrder(t *testing.T) {
	t.Parallel()
	var b backlog
	soon := time.Now().Add(time.Hour)
	_, ok := b.next("k", time.Now())
	require.False(t, ok)
	b.arrive("k", "none")
	b.leave("k", "none")
	for _, id := range []string{"1", "2", "3", "1"} { // a task is there once, at its first position
		b.add("k", id, waiter{queue: "q", id: id, until: soon})
	}
	b.add("other", "1", waiter{queue: "q", id: "1", until: soon})
	b.add("k", "over", waiter{queue: "q", id: "over", until: time.Now()})
	b.add("k", "4", waiter{queue: "q", id: "4", until: soon})
	require.Equal(t, 6, b.count)
	b.arrive("k", "2")
	b.leave("k", "2")
	b.leave("k", "2")
	b.leave("k", "3") // it has not come back
	require.Equal(t, 5, b.count)
	for _, want := range []string{"1", "3", "4"} {
		w, ok := b.next("k", time.Now())
		require.True(t, ok)
		require.Equal(t, want, w.id)
		require.Equal(t, "q", w.queue)
	}
	_, ok = b.next("k", time.Now())
	require.False(t, ok)
	require.Equal(t, 1, b.count)
	require.Nil(t, b.keys["k"])
	b.add("k", "1", waiter{id: "1", until: soon})
	w, ok := b.next("k", time.Now())
	require.True(t, ok)
	require.Equal(t, "1", w.id)
	last, waking := b.last("k")
	require.Equal(t, "1", last.id)
	require.True(t, waking)
	b.woke("k", "2") // an earlier one
	b.woke("k", "1")
	_, waking = b.last("k")
	require.False(t, waking)
	last, _ = b.last("none")
	require.Zero(t, last)
}

func TestBacklog_wakesOneTaskForOneRun(t *testing.T) {
	t.Parallel()
	var b backlog
	soon, ended := time.Now().Add(time.Hour), time.Now()
	b.add("k", "1", waiter{id: "1", until: soon})
	b.add("k", "2", waiter{id: "2", until: soon})
	_, ok := b.next("k", ended)
	require.True(t, ok)
	_, ok = b.next("k", ended)
	require.False(t, ok, "another one was woken since")
	_, ok = b.next("k", time.Now())
	require.True(t, ok)
}

// A task that was woken while a run is under way finds its key busy if that run is long.
func TestBacklog_aTaskThatIsPostponedAgainKeepsItsPosition(t *testing.T) {
	t.Parallel()
	wake := func(b *backlog) { _, _ = b.next("k", time.Now()) }
	for name, comes := range map[string]func(b *backlog){
		"woken": wake,
		"both woken": func(b *backlog) {
			wake(b)
			wake(b)
			b.arrive("k", "2")
			b.add("k", "2", waiter{id: "2", until: time.Now().Add(time.Hour)})
		},
		"by itself": func(*backlog) {},
	} {
		for _, copied := range []string{"1", "1~1"} {
			t.Run(name+" "+copied, func(t *testing.T) {
				t.Parallel()
				var b backlog
				soon := time.Now().Add(time.Hour)
				b.add("k", "1", waiter{id: "1", until: soon})
				b.add("k", "2", waiter{id: "2", until: soon})
				comes(&b)
				b.arrive("k", "1")
				b.add("k", "1", waiter{id: copied, until: soon})
				b.leave("k", "1") // it stays
				for _, want := range []string{copied, "2"} {
					w, ok := b.next("k", time.Now())
					require.True(t, ok)
					require.Equal(t, want, w.id)
				}
				for _, id := range []string{copied, "2"} {
					b.leave("k", id)
				}
				require.Zero(t, b.count)
				require.Empty(t, b.keys)
			})
		}
	}
}

// Tasks that were woken can go to other processes, and then nothing comes back here.
func TestBacklog_forgetsTasksThatWereWoken(t *testing.T) {
	t.Parallel()
	var b backlog
	for i := range 100 {
		b.add("k", "", waiter{id: fmt.Sprint(i), until: time.Now().Add(time.Hour)})
	}
	for range 50 {
		_, ok := b.next("k", time.Now())
		require.True(t, ok)
	}
	require.Equal(t, 50+maxWoken, b.count)
	require.Len(t, b.keys["k"].tasks, b.count)
}

func TestBacklog_forgetsWhatHasComeBackWhenItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b backlog
		soon, over := time.Now().Add(time.Hour), time.Now()
		for i := range maxBacklog {
			until := soon
			if i%2 == 0 {
				until = over
			}
			b.add(fmt.Sprint("key ", i/4), "", waiter{id: fmt.Sprint(i), until: until})
		}
		require.Equal(t, maxBacklog, b.count)
		b.add("k", "", waiter{id: "too soon after the last sweep", until: soon})
		require.Equal(t, maxBacklog, b.count)
		require.NotContains(t, b.keys, "k")
		time.Sleep(fullInterval + 1)
		b.add("k", "", waiter{id: "new", until: soon})
		require.Equal(t, maxBacklog/2+1, b.count)
		require.Len(t, b.keys, maxBacklog/4+1)
		w, ok := b.next("key 0", time.Now())
		require.True(t, ok)
		require.Equal(t, "1", w.id)
		for i := range maxBacklog {
			b.add(fmt.Sprint("k", i/4), "", waiter{id: fmt.Sprint("more ", i), until: soon})
		}
		require.Equal(t, maxBacklog, b.count, "what is beyond it is not remembered")
	})
}

func TestNextID_countsTheCopies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ origin, id, want string }{
		{"41", "41", "41~1"},
		{"41", "41~1", "41~2"},
		{"41", "41~9", "41~10"},
		{"a~7", "a~7", "a~7~1"},
		{"a~7", "a~7~1", "a~7~2"},
		{"41", "41~QWERTZUI", "41~1"},
		{"41", "follow-up~asynq:x~a", "41~1"},
	} {
		require.Equal(t, c.want, nextID(c.origin, c.id))
	}
}
