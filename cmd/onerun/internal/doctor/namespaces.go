package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
)

// A Namespace is one that keys of the store seem to have: what stands before their first colon.
type Namespace struct {
	Name   string `json:"name"` // "" for keys without one
	Keys   int    `json:"keys"`
	Chosen bool   `json:"chosen"` // by --namespace: the one that commands show
}

// scanTime bounds the search for namespaces.
const scanTime = 2 * time.Second

// namespaces lists the namespaces of the store, the chosen one first. The error is that of the
// store, or of a user who has no right to scan it.
func namespaces(ctx context.Context, locker guard.Locker, c Config) (all []Namespace, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(c.Timeout, scanTime))
	defer cancel()
	g, err := guard.New(locker, guard.WithoutNamespace(), guard.WithNamespace(c.Namespace))
	if err != nil {
		return nil, false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.Close(closing)
	}()
	i, err := inspect.New(g)
	if err != nil {
		return nil, false, err
	}
	found, more, err := i.Namespaces(ctx)
	all = []Namespace{{Name: c.Namespace, Chosen: true}}
	for _, n := range found {
		if n.Name == c.Namespace {
			all[0].Keys = n.Keys
		} else {
			all = append(all, Namespace{Name: n.Name, Keys: n.Keys})
		}
	}
	return all, more, err
}

// namespacesText says which namespace commands show, and which others there are.
func (r *Report) namespacesText() string {
	var texts []string
	for _, n := range r.Namespaces {
		name := "namespace " + n.Name
		if n.Name == "" {
			name = "no namespace"
		}
		keys := "keys"
		if n.Keys == 1 {
			keys = "key"
		}
		if !n.Chosen {
			name = fmt.Sprintf("%s (%d %s)", name, n.Keys, keys)
		}
		texts = append(texts, name)
	}
	text := "commands look at keys of " + texts[0]
	if len(texts) > 1 {
		text += "; --namespace chooses others: " + strings.Join(texts[1:], ", ")
	}
	if r.MoreKeys {
		text += "; not all keys were scanned"
	}
	return text
}
