package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Namespace returns the namespace whose keys and jobs the Inspector shows. It is "" if it shows
// those that have none.
func (i *Inspector) Namespace() string { return i.guard.Adapter().Namespace() }

// Store returns the name of the backend that the Inspector shows, and the address of its server if
// there is one, such as "single 10.0.0.7:6379". It has no password.
func (i *Inspector) Store() string { return i.guard.Adapter().Store() }

// A Namespace is one that keys of the store seem to have.
type Namespace struct {
	Name string // "" for keys without one
	Keys int    // how many keys were found
}

// The bounds of a search through all namespaces.
const (
	searchPage  = 10_000 // keys
	searchPages = 20
	searchTime  = time.Second
)

// Namespaces returns the namespaces of the keys that are held, kept or done, by name. It scans for
// a second at most; more says that it has not seen all keys. Its errors are those of Show.
func (i *Inspector) Namespaces(ctx context.Context) (all []Namespace, more bool, err error) {
	count := map[string]int{}
	more, err = i.search(ctx, func(stored string) {
		namespace, _ := driver.SplitNamespace(stored)
		count[namespace]++
	})
	for name, keys := range count {
		all = append(all, Namespace{name, keys})
	}
	slices.SortFunc(all, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return all, more, err
}

// A Place is a namespace under which a key is not free.
type Place struct {
	Namespace string // "" for none
	Key
}

// Elsewhere returns where a key of that name is held, kept or done: under other namespaces than the
// Inspector's, or without one. It scans for a second at most, and may not find all. Its errors are
// those of Show.
func (i *Inspector) Elsewhere(ctx context.Context, key string) (places []Place, err error) {
	everywhere, _ := i.guard.Adapter().Everywhere()
	found := map[string]bool{}
	_, err = i.search(ctx, func(stored string) {
		if namespace, of := driver.SplitNamespace(stored); of == key {
			found[namespace] = true
		}
	})
	if err != nil {
		return nil, err
	}
	if i.Namespace() != "" {
		found[""] = true // there is no need to search for it
	}
	delete(found, i.Namespace())
	for namespace := range found {
		info, err := everywhere.Show(ctx, driver.JoinNamespace(namespace, key))
		switch state := info.State(); {
		case isKeyError(err):
			// another program's key has such a name
		case err != nil:
			return nil, err
		case state != driver.KeyFree && state != driver.KeyForeign:
			places = append(places, Place{namespace, Key{key, info}})
		}
	}
	slices.SortFunc(places, func(a, b Place) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return places, nil
}

// search calls f with the keys of the store, within bounds. more says that there are others.
func (i *Inspector) search(ctx context.Context, f func(stored string)) (more bool, err error) {
	everywhere, ok := i.guard.Adapter().Everywhere()
	if !ok {
		return false, &guard.SettingError{Setting: "guard", Reason: "its backend cannot show its keys (driver.Inspector)"}
	}
	begun, cursor := time.Now(), ""
	for range searchPages {
		keys, next, err := everywhere.Keys(ctx, "", cursor, searchPage)
		if err != nil {
			return true, err
		}
		for _, key := range keys {
			f(key)
		}
		if cursor = next; cursor == "" {
			return false, nil
		}
		if time.Since(begun) > searchTime {
			break
		}
	}
	return true, nil
}
