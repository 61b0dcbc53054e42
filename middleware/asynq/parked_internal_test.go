package guardasynq

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParked_givesTasksBackInTheirOrder(t *testing.T) {
	t.Parallel()
	var p parked
	soon := time.Now().Add(time.Hour)
	_, ok := p.next("k", time.Now())
	require.False(t, ok)
	p.remove("k", "none")
	for _, id := range []string{"1", "2", "3", "1"} { // a task is there once, at its first place
		p.add("k", parkedTask{queue: "q", id: id, until: soon})
	}
	p.add("other", parkedTask{queue: "q", id: "1", until: soon})
	p.add("k", parkedTask{queue: "q", id: "over", until: time.Now()})
	p.add("k", parkedTask{queue: "q", id: "4", until: soon})
	require.Equal(t, 6, p.count)
	p.remove("k", "2")
	p.remove("k", "2")
	require.Equal(t, 5, p.count)
	for _, want := range []string{"1", "3", "4"} {
		task, ok := p.next("k", time.Now())
		require.True(t, ok)
		require.Equal(t, want, task.id)
		require.Equal(t, "q", task.queue)
		require.Equal(t, soon, task.until)
	}
	_, ok = p.next("k", time.Now())
	require.False(t, ok)
	require.Equal(t, 1, p.count)
	require.Nil(t, p.keys["k"])
	p.add("k", parkedTask{id: "1", until: soon})
	task, ok := p.next("k", time.Now())
	require.True(t, ok)
	require.Equal(t, "1", task.id)
}

// A task that was brought while a run was under way finds its key busy if that run is long.
func TestParked_aTaskThatIsPostponedAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string]func(p *parked){
		"brought":      func(p *parked) { _, _ = p.next("k", time.Now()) },
		"both brought": func(p *parked) { _, _ = p.next("k", time.Now()); _, _ = p.next("k", time.Now()) },
		"by itself":    func(*parked) {},
		"while 2 comes": func(p *parked) {
			_, _ = p.next("k", time.Now())
			p.add("k", parkedTask{id: "2", until: time.Now().Add(time.Hour)})
		},
	} {
		for _, copied := range []string{"1", "1~1"} {
			t.Run(name+" "+copied, func(t *testing.T) {
				t.Parallel()
				var p parked
				soon := time.Now().Add(time.Hour)
				p.add("k", parkedTask{id: "1", until: soon})
				if name != "while 2 comes" {
					p.add("k", parkedTask{id: "2", until: soon})
				}
				comes(&p)
				position := p.remove("k", "1")
				if name == "both brought" { // and the other one finds its key busy first
					p.add("k", parkedTask{id: "3", until: soon})
					p.add("k", parkedTask{id: "2", until: soon, position: p.remove("k", "2")})
				}
				p.add("k", parkedTask{id: copied, until: soon, position: position})
				for _, want := range []string{copied, "2"} {
					task, ok := p.next("k", time.Now())
					require.True(t, ok)
					require.Equal(t, want, task.id)
				}
				for _, id := range []string{copied, "2", "3"} {
					p.remove("k", id)
				}
				require.Zero(t, p.count)
				require.Empty(t, p.keys)
			})
		}
	}
}

func TestParked_forgetsWhatHasComeBackWhenItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testFullParked)
}

func testFullParked(t *testing.T) {
	var p parked
	soon, over := time.Now().Add(time.Hour), time.Now()
	for i := range mostParked {
		until := soon
		if i%2 == 0 {
			until = over
		}
		p.add(fmt.Sprint("key ", i/4), parkedTask{id: fmt.Sprint(i), until: until})
	}
	require.Equal(t, mostParked, p.count)
	p.add("k", parkedTask{id: "too soon after the last look", until: soon})
	require.Equal(t, mostParked, p.count)
	time.Sleep(fullInterval + 1)
	p.add("k", parkedTask{id: "new", until: soon})
	require.Equal(t, mostParked/2+1, p.count)
	require.Len(t, p.keys, mostParked/4+1)
	task, ok := p.next("key 0", time.Now())
	require.True(t, ok)
	require.Equal(t, "1", task.id)
	for i := range mostParked {
		p.add("k", parkedTask{id: fmt.Sprint("more ", i), until: soon})
	}
	require.Equal(t, mostParked, p.count, "what is beyond it is not remembered")
	for range mostParked - mostParked/2 + 1 {
		_, ok = p.next("k", time.Now())
		require.True(t, ok)
	}
	_, ok = p.next("k", time.Now())
	require.False(t, ok)
	require.Nil(t, p.keys["k"])
}

func TestWaiters_areBoundedForEachKey(t *testing.T) {
	t.Parallel()
	w := waiters{most: 2, keys: map[string]int{}}
	require.True(t, w.enter("k"))
	require.True(t, w.enter("k"))
	require.False(t, w.enter("k"))
	require.True(t, w.enter("other"))
	w.leave("k")
	require.True(t, w.enter("k"))
	require.False(t, w.enter("k"))
	w.leave("other")
	require.NotContains(t, w.keys, "other")
	w.leave("k")
	w.leave("k")
	require.Empty(t, w.keys)
	w.most = noBound
	for range 100 {
		require.True(t, w.enter("k"))
	}
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

func TestTypeName_isANameThatTheGuardTakes(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, longestName+1))
	require.Equal(t, "import", typeName("import"))
	require.Equal(t, "asynq", typeName(long))
	require.Equal(t, "asynq", typeName("a\x00b"))
	require.Equal(t, "asynq", typeName("a\xff"))
}
