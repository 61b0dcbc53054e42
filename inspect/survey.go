package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Waited is the State of a Query for keys for which others wait.
const Waited driver.KeyState = "waiting"

// A Query says which keys a Survey returns.
type Query struct {
	Prefix string
	// Match leaves out the keys for which it returns false, also from the numbers. It may be nil.
	Match func(key string) bool
	// State is driver.KeyHeld, driver.KeyKept, Waited, or "" for all of these.
	State driver.KeyState
	Limit int // how many keys are returned, from 1 to 1,000
}

// A Survey is what a look at all keys has found.
type Survey struct {
	// Held, Kept and Done are how many keys are in these states. Waited is for how many keys others
	// wait, which are held or kept.
	Held, Waited, Kept, Done int
	// Found is how many keys are of the State of the Query, and Keys are the first of them. Keys
	// that others wait for come first, then those that are held, and then the others, the oldest
	// first.
	Found int
	Keys  []Key
	// More means that the time was over before all keys were seen.
	More bool
}

// The bounds of a Survey.
const (
	surveyTime  = 3 * time.Second
	maxSurveyed = 1000
)

// Waiting returns how many wait for the key, as far as the store knows: claims in its queue, or
// processes that wait to be notified.
func (k *Key) Waiting() int {
	waiting := max(len(k.Queue), k.Subscribers, 0)
	if k.Wanted != "" {
		waiting = max(waiting, 1)
	}
	return waiting
}

// Survey looks at all keys that begin with the prefix, for three seconds at most. It counts done
// markers without a look at each, and returns none. So it is quick if most keys are done: 100,000
// of them take about a second on Redis, and each other key some 50 µs. On backend/reentrant, done
// markers take as long as other keys. A Survey is for people, and not for a short timer. Its errors
// are those of Show.
func (i *Inspector) Survey(ctx context.Context, q Query) (s Survey, err error) {
	q.Limit = min(max(q.Limit, 1), maxSurveyed)
	over := time.Now().Add(surveyTime)
	seen := map[string]bool{}
	for cursor := ""; ; {
		names, next, err := i.store.Keys(ctx, q.Prefix, cursor, searchPage)
		if err != nil {
			return s, err
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			twice := seen[name]
			seen[name] = true
			return twice || q.Match != nil && !q.Match(name)
		})
		if err := i.surveyPage(ctx, q, &s, names, over); err != nil {
			return s, err
		}
		if cursor = next; cursor == "" {
			return s, nil
		}
		if s.More = s.More || time.Now().After(over); s.More {
			return s, nil
		}
	}
}

// surveyPage adds what a page of keys has to the Survey.
func (i *Inspector) surveyPage(ctx context.Context, q Query, s *Survey, names []string, over time.Time) error {
	marked, err := i.store.Marked(ctx, names)
	if err != nil {
		return err
	}
	var others []string
	for j, name := range names {
		if marked[j] {
			s.Done++
		} else {
			others = append(others, name)
		}
	}
	for len(others) > 0 {
		if time.Now().After(over) {
			s.More = true
			return nil
		}
		some := others[:min(len(others), maxSurveyed)]
		others = others[len(some):]
		keys, err := i.showAll(ctx, some)
		if err != nil {
			return err
		}
		for _, key := range keys {
			s.add(q, key)
		}
		s.trim(q.Limit)
	}
	return nil
}

func (s *Survey) add(q Query, key Key) {
	state := key.State()
	switch state {
	case driver.KeyHeld:
		s.Held++
	case driver.KeyKept:
		s.Kept++
	case driver.KeyDone: // its marker was not found before
		s.Done++
		return
	case driver.KeyFree, driver.KeyForeign: // not shown
		return
	}
	waited := key.Waiting() > 0
	if waited {
		s.Waited++
	}
	if q.State == "" || q.State == state || q.State == Waited && waited {
		s.Found++
		s.Keys = append(s.Keys, key)
	}
}

// trim keeps the first keys.
func (s *Survey) trim(limit int) {
	slices.SortFunc(s.Keys, func(a, b Key) int {
		return cmp.Or(boolCompare(b.Waiting() > 0, a.Waiting() > 0), cmp.Compare(rank(&a), rank(&b)),
			a.since().Compare(b.since()), strings.Compare(a.Name, b.Name))
	})
	s.Keys = slices.Clip(s.Keys[:min(len(s.Keys), limit)])
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// rank orders keys: what is held comes before what is kept.
func rank(k *Key) int {
	return slices.Index([]driver.KeyState{driver.KeyHeld, driver.KeyKept}, k.State())
}

// since returns when the oldest holder was granted the key. A key whose holders have no time comes
// after the others.
func (k *Key) since() time.Time {
	oldest := k.Time.Add(time.Hour)
	for _, h := range k.Holders {
		if at := h.Since(); !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// showAll shows keys, some at a time. It leaves out those that are free, and those of other
// programs.
func (i *Inspector) showAll(ctx context.Context, names []string) (keys []Key, err error) {
	all := make([]Key, len(names))
	errs := make([]error, len(names))
	slots := make(chan struct{}, showsAtOnce)
	var shown sync.WaitGroup
	for at, name := range names {
		slots <- struct{}{}
		shown.Go(func() {
			defer func() { <-slots }()
			all[at], errs[at] = i.Show(ctx, name)
		})
	}
	shown.Wait()
	for at, key := range all {
		switch state := key.State(); {
		case isKeyError(errs[at]):
			// another program's key has such a name
		case errs[at] != nil:
			return nil, errs[at]
		case state != driver.KeyFree && state != driver.KeyForeign:
			keys = append(keys, key)
		}
	}
	return keys, nil
}
