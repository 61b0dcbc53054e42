package tracing

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-1795987d/onerun/internal/signals"
)

// maxSets bounds the sets of attributes of one name. The package itself makes far fewer. Only
// reports of users (guard.Adapter.Report) can reach the bound.
const maxSets = 200

// A work is the state of a name: its counts, and values that would be costly to make for each
// event.
type work struct {
	job  Job
	name attribute.KeyValue

	acquire, run, release, renew, skip string // names of spans

	waiting, leases, runs atomic.Int64
	election              election

	mu sync.Mutex
	// copied on each addition: additions are few, and each event reads it
	sets atomic.Pointer[map[labels]*measured]
}

func newWork(job Job) *work {
	job.Name = signals.Valid(job.Name) // an adapter can report other names than WithName takes
	return &work{
		job: job, name: keyName.String(job.Name),
		acquire: "acquire " + job.Name, run: "run " + job.Name, release: "release " + job.Name, renew: "renew " + job.Name, skip: "skip " + job.Name,
	}
}

// labels are the values of a metric's attributes, without the name. The zero value has none.
type labels struct {
	key       attribute.Key // of value
	value     string
	errorType string
	adapter   string
	node      string
	bare      bool // without the name
}

// coarse returns labels for those beyond the bound. Reports of users' adapters lose their result.
// Calls to the store keep their operation and node, which are few, and lose the kind of the error.
func (l labels) coarse() labels {
	if !l.bare {
		return labels{key: l.key, value: signals.ErrorOther}
	}
	if l.errorType != "" {
		l.errorType = signals.ErrorOther
	}
	return l
}

// measured is a set of attributes, in the forms that instruments need.
type measured struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

// with returns the set of attributes of the name and l.
func (w *work) with(l labels) *measured {
	if m := w.sets.Load(); m != nil {
		if found, ok := (*m)[l]; ok {
			return found
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sets := map[labels]*measured{}
	if old := w.sets.Load(); old != nil {
		if found, ok := (*old)[l]; ok {
			return found
		}
		if len(*old) >= maxSets {
			return w.attributes(l.coarse())
		}
		maps.Copy(sets, *old)
	}
	sets[l] = w.attributes(l)
	w.sets.Store(&sets)
	return sets[l]
}

func (w *work) attributes(l labels) *measured {
	var attrs []attribute.KeyValue
	if !l.bare {
		attrs = append(attrs, w.name)
	}
	if l.key != "" {
		attrs = append(attrs, l.key.String(l.value))
	}
	if l.errorType != "" {
		attrs = append(attrs, keyErrorType.String(l.errorType))
	}
	if l.node != "" {
		attrs = append(attrs, keyNode.String(l.node))
	}
	if l.adapter != "" {
		attrs = append(attrs, keyAdapter.String(l.adapter))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &measured{add: []metric.AddOption{set}, record: []metric.RecordOption{set}, observe: []metric.ObserveOption{set}}
}

// names are the names that metrics distinguish.
type names struct {
	most  int
	mu    sync.Mutex
	all   atomic.Pointer[map[string]*work] // copied on each addition
	other *work                            // for names beyond the bound
	spilt atomic.Bool
}

func newNames(jobs []Job, most int) *names {
	n := &names{most: most, other: newWork(Job{Name: OtherName})}
	all := map[string]*work{}
	for _, job := range jobs {
		all[job.Name] = newWork(job)
	}
	n.all.Store(&all)
	return n
}

// of returns the work of a name, which may be that of OtherName.
func (n *names) of(name string) *work {
	if name == "" {
		name = NoName
	}
	all := n.all.Load()
	if w, ok := (*all)[name]; ok {
		return w
	}
	if len(*all) >= n.most {
		n.spilt.Store(true)
		return n.other
	}
	return n.add(name)
}

// add adds a name, unless it has been added meanwhile.
func (n *names) add(name string) *work {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := maps.Clone(*n.all.Load())
	if w, ok := all[name]; ok {
		return w
	}
	if len(all) >= n.most {
		n.spilt.Store(true)
		return n.other
	}
	all[name] = newWork(Job{Name: name})
	n.all.Store(&all)
	return all[name]
}

// each calls f for each name that metrics distinguish.
func (n *names) each(f func(*work)) {
	for _, w := range *n.all.Load() {
		f(w)
	}
	if n.spilt.Load() {
		f(n.other)
	}
}

// maxHolders returns the attribute that onerun.lease.active has in addition to the name.
func (w *work) maxHolders() labels {
	if w.job.Single {
		return labels{key: keyMaxHolders, value: "1"}
	}
	return labels{}
}
