package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// maxPage is the largest number of keys in a page.
const maxPage = 10000

// A boundedInspector checks the arguments of an Inspector, and bounds its calls.
type boundedInspector struct {
	guard     *Guard
	inspector driver.Inspector
	opts      []Option // of each call
}

// stored returns the key by which the store knows a key of the Guard's namespace. Without one, it
// may be a key of any namespace, as Keys returns it.
func (i *boundedInspector) stored(key string) (string, error) {
	set, err := i.guard.set.with(i.opts)
	if err != nil {
		return "", err
	}
	stored := driver.JoinNamespace(set.namespace, key)
	return stored, i.guard.facts.CheckKey(stored)
}

// Show implements driver.Inspector.
func (i *boundedInspector) Show(ctx context.Context, key string) (info driver.KeyInfo, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return info, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		info, err = i.inspector.Show(ctx, stored)
		return err
	})
	return info, err
}

// Keys implements driver.Inspector.
func (i *boundedInspector) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	if n < 1 || n > maxPage {
		return nil, "", &SettingError{Setting: "n", Value: fmt.Sprint(n), Reason: fmt.Sprintf("must be from 1 to %d", maxPage)}
	}
	set, err := i.guard.set.with(i.opts)
	if err != nil {
		return nil, "", err
	}
	below := strings.TrimSuffix(driver.JoinNamespace(set.namespace, "k"), "k")
	var refused *SettingError
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, prefix, func(ctx context.Context) error {
		keys, next, err = i.inspector.Keys(ctx, below+prefix, cursor, n)
		if errors.As(err, &refused) {
			return nil // the store was not asked
		}
		return err
	})
	if refused != nil {
		return nil, "", refused
	}
	for j, key := range keys {
		keys[j] = strings.TrimPrefix(key, below)
	}
	return keys, next, err
}

// Break implements driver.Inspector.
func (i *boundedInspector) Break(ctx context.Context, key, id string, b driver.Break) (broken bool, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return false, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		broken, err = i.inspector.Break(ctx, stored, id, b)
		return err
	})
	return broken && err == nil, err
}

// Forget implements driver.Inspector.
func (i *boundedInspector) Forget(ctx context.Context, key string) (forgotten bool, err error) {
	stored, err := i.stored(key)
	if err != nil {
		return false, err
	}
	err = i.guard.bounded(ctx, boundedTimeout, driver.OpInspect, key, func(ctx context.Context) (err error) {
		forgotten, err = i.inspector.Forget(ctx, stored)
		return err
	})
	return forgotten && err == nil, err
}
