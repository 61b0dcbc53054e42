package guardasynq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

func TestKeys_areFoundInTheTask(t *testing.T) {
	t.Parallel()
	text := func(key string) guardasynq.KeyFunc {
		return func(context.Context, *asynq.Task) (string, error) { return key, nil }
	}
	huge := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		key     guardasynq.KeyFunc
		payload string
		headers map[string]string
		want    string
		err     string // what the text of the KeyError ends with
	}{
		"the type":                     {key: guardasynq.FromType(), payload: "any", want: "type"},
		"the payload":                  {key: guardasynq.FromPayload(), payload: "a\x00b", want: "payload:a\x00b"},
		"an empty payload":             {key: guardasynq.FromPayload(), want: "payload:"},
		"a huge payload":               {key: guardasynq.FromPayload(), payload: huge, want: "payload:" + huge},
		"a string in JSON":             {key: guardasynq.FromJSON("id"), payload: `{"a":1,"id":"x\u00e9"}`, want: "xé"},
		"an integer in JSON":           {key: guardasynq.FromJSON("id"), payload: `{"id":123456789012345678901234567890}`, want: "123456789012345678901234567890"},
		"inside of objects":            {key: guardasynq.FromJSON("a", "b", "c"), payload: `{"a":{"b":{"c":"x"},"c":1},"c":2}`, want: "x"},
		"in a huge payload":            {key: guardasynq.FromJSON("id"), payload: `{"x":"` + huge + `","id":"y"}`, want: "y"},
		"a header":                     {key: guardasynq.FromHeader("Tenant"), headers: map[string]string{"Tenant": "17"}, want: "17"},
		"another's function":           {key: text("x"), want: "x"},
		"no JSON":                      {key: guardasynq.FromJSON("id"), payload: "id", err: `JSON field id of the payload cannot be read: there is no JSON object`},
		"no payload":                   {key: guardasynq.FromJSON("id"), err: `JSON field id of the payload cannot be read: there is no JSON object`},
		"nothing of that name":         {key: guardasynq.FromJSON("a", "id"), payload: `{"a":{"ID":"x"}}`, err: `JSON field a.id of the payload is missing`},
		"null":                         {key: guardasynq.FromJSON("id"), payload: `{"id":null}`, err: `is missing`},
		"a fraction":                   {key: guardasynq.FromJSON("id"), payload: `{"id":1.0}`, err: `is neither a string nor an integer`},
		"twice":                        {key: guardasynq.FromJSON("id"), payload: `{"id":"x","id":"x"}`, err: `is there more than once`},
		"an empty string":              {key: guardasynq.FromJSON("id"), payload: `{"id":""}`, err: `JSON field id of the payload is empty`},
		"no header":                    {key: guardasynq.FromHeader("Tenant"), headers: map[string]string{"tenant": "17"}, err: `header Tenant is missing`},
		"no headers":                   {key: guardasynq.FromHeader("Tenant"), err: `header Tenant is missing`},
		"an empty header":              {key: guardasynq.FromHeader("Tenant"), headers: map[string]string{"Tenant": ""}, err: `header Tenant is empty`},
		"no task ID":                   {key: guardasynq.FromTaskID(), err: `task ID is empty`},
		"another's function, empty":    {key: text(""), err: `the key is empty`},
		"one that joins what is not":   {key: guardasynq.Join(guardasynq.FromType(), guardasynq.FromJSON("id")), payload: `{}`, err: `JSON field id of the payload is missing`},
		"one that joins what is empty": {key: guardasynq.Join(text("a"), text("")), err: `part 2 of the key is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := aqKeyOf(t, c.key, asynq.NewTaskWithHeaders("import", []byte(c.payload), c.headers))
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, found)
				return
			}
			var no *guardasynq.KeyError
			require.ErrorAs(t, err, &no)
			require.ErrorIs(t, err, asynq.SkipRetry)
			require.Equal(t, "import", no.Type)
			require.True(t, strings.HasPrefix(no.Error(), `guardasynq: task "import": `+no.From+" "), no.Error())
			require.True(t, strings.HasSuffix(no.Error(), c.err), no.Error())
			require.ErrorContains(t, err, `guardasynq: key of task "import": `)
		})
	}
}

// aqKeyOf returns the key under which a handler runs.
func aqKeyOf(t *testing.T, key guardasynq.KeyFunc, task *asynq.Task) (found string, err error) {
	t.Helper()
	g := optionsGuard(t)
	m, err := guardasynq.New(g, key, aqNoClient(t), guardasynq.WithBusy(guardasynq.Fail))
	require.NoError(t, err)
	err = m(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		found = guardasynq.Key(ctx)
		return nil
	})).ProcessTask(t.Context(), task)
	return found, err
}

func TestJoin_standsForTheWholeListOfParts(t *testing.T) {
	t.Parallel()
	text := func(key string) guardasynq.KeyFunc {
		return func(context.Context, *asynq.Task) (string, error) { return key, nil }
	}
	seen := map[string]bool{}
	for _, parts := range [][]string{{"a", "bc"}, {"ab", "c"}, {"abc"}, {"bc", "a"}, {"a", "b", "c"}, {"a", "a", "bc"}} {
		var all []guardasynq.KeyFunc
		for _, p := range parts {
			all = append(all, text(p))
		}
		join := guardasynq.Join(all[0], all[1:]...)
		key, err := aqKeyOf(t, join, asynq.NewTask("import", nil))
		require.NoError(t, err)
		require.Len(t, key, 64)
		again, err := aqKeyOf(t, join, asynq.NewTask("export", []byte("other")))
		require.NoError(t, err)
		require.Equal(t, key, again)
		seen[key] = true
	}
	require.Len(t, seen, 6)
	_, err := aqKeyOf(t, guardasynq.Join(text("a"), func(context.Context, *asynq.Task) (string, error) { return "", errAqOther }), asynq.NewTask("import", nil))
	require.ErrorIs(t, err, errAqOther)
	require.NotErrorIs(t, err, asynq.SkipRetry)
}

func TestKeys_constructorsPanicWithoutWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		"guardasynq: FromJSON: the name must not be empty":   func() { guardasynq.FromJSON("") },
		"guardasynq: FromHeader: the name must not be empty": func() { guardasynq.FromHeader(" ") },
		"guardasynq: Join: function 1 is nil":                func() { guardasynq.Join(nil) },
		"guardasynq: Join: function 3 is nil":                func() { guardasynq.Join(guardasynq.FromType(), guardasynq.FromType(), nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
	require.Panics(t, func() { guardasynq.FromJSON("a", "\t") })
}

func TestKeyError_archivesTheTaskAtOnce(t *testing.T) {
	t.Parallel()
	var reported aqErrors
	s, w, _ := aqHolding(t, aqConfig(func(c *asynq.Config) { c.ErrorHandler = &reported }))
	s.enqueue(t, "import", `{"key":null}`, asynq.TaskID("1"), asynq.MaxRetry(9))
	info := s.awaitState(t, "1", asynq.TaskStateArchived)
	require.Equal(t, `guardasynq: key of task "import": guardasynq: task "import": JSON field key of the payload is missing`, info.LastErr)
	require.Zero(t, info.Retried)
	ids, errs := reported.all()
	require.Equal(t, []string{"1"}, ids)
	var no *guardasynq.KeyError
	require.ErrorAs(t, errs[0], &no)
	require.Equal(t, guardasynq.KeyError{Type: "import", From: "JSON field key of the payload", Reason: "is missing"}, *no)
	outcome := s.outcomes.await(t, resultRefused, 1)[0]
	require.ErrorAs(t, outcome.Err, &no)
	w.none(t)
}

func TestKeys_anotherErrorOfAFunctionIsRetried(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	var calls atomic.Int64
	m := s.middleware(t, func(context.Context, *asynq.Task) (string, error) {
		if calls.Add(1) == 1 {
			return "", errors.New("the database is away")
		}
		return "k", nil
	})
	s.serve(t, aqConfig(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}), m(w))
	t.Cleanup(w.release)
	s.enqueue(t, "import", "", asynq.TaskID("1"))
	info := s.awaitState(t, "1", asynq.TaskStateRetry)
	require.Equal(t, 1, info.Retried)
	require.Equal(t, `guardasynq: key of task "import": the database is away`, info.LastErr)
	w.next(t).returns(nil)
	s.awaitEmpty(t)
}

func TestKeys_ofTwoTypesMeetInAGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		groups map[string]string
		meet   bool
	}{
		"no group":    {groups: map[string]string{"import": "", "export": ""}},
		"one group":   {groups: map[string]string{"import": "files", "export": "files"}, meet: true},
		"two groups":  {groups: map[string]string{"import": "files", "export": "more"}},
		"one of them": {groups: map[string]string{"import": "", "export": "import"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := newAqSite(t), newAqWork(t)
			mux := asynq.NewServeMux()
			for typename, group := range c.groups {
				opts := []guardasynq.Option{guardasynq.WithBusy(guardasynq.Skip)}
				if group != "" {
					opts = append(opts, guardasynq.WithGroup(group))
				}
				mux.Handle(typename, s.middleware(t, guardasynq.FromJSON("key"), opts...)(w))
			}
			s.serve(t, aqConfig(), mux)
			t.Cleanup(w.release)
			s.enqueue(t, "import", aqJSON("k", ""))
			w.next(t)
			s.enqueue(t, "export", aqJSON("k", ""))
			if c.meet {
				s.outcomes.await(t, resultSkipped, 1)
				w.none(t)
			} else {
				w.next(t)
			}
		})
	}
}

func TestKeys_oneMiddlewareInsideOfAnother(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	byID := s.middleware(t, guardasynq.FromTaskID(), guardasynq.WithDelay(10*time.Minute))
	byKey := s.middleware(t, guardasynq.FromJSON("key"), guardasynq.WithDelay(10*time.Minute))
	s.serve(t, aqConfig(), byID(byKey(w)))
	t.Cleanup(w.release)
	s.enqueue(t, "import", aqJSON("k", "0"))
	run := w.next(t)
	require.Equal(t, "k", guardasynq.Key(run.ctx), "of the inner one")
	for i, attempts := range []int{0, 5, 0} {
		s.enqueue(t, "import", aqJSON("k", fmt.Sprint(i)), asynq.TaskID(fmt.Sprint(i)), asynq.MaxRetry(attempts))
		s.outcomes.await(t, resultPostponed, i+1)
	}
	seen := map[string]bool{}
	for range 3 {
		run.returns(nil)
		run = w.next(t)
		seen[run.taskID] = true
	}
	run.returns(nil)
	s.awaitEmpty(t)
	require.Len(t, seen, 3)
	require.Empty(t, guardasynq.Key(t.Context()))
}
