package connect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/backend/single"
)

// plainOptions returns the option of single for names of other libraries' locks: the pattern has
// one %s, which stands for the key.
func plainOptions(c Config) ([]single.Option, error) {
	if c.Plain == "" {
		return nil, nil
	}
	if c.Backend == Reentrant {
		return nil, errors.New("--plain: has no effect with --backend reentrant, whose keys have plain names already")
	}
	before, after, ok := strings.Cut(c.Plain, "%s")
	if !ok || strings.Contains(before+after, "%") {
		return nil, fmt.Errorf(`--plain: %q must have one %%s, which stands for the key, as in "job-lock:%%s"`, c.Plain)
	}
	return []single.Option{single.WithPlainKeys(func(key string) string { return before + key + after })}, nil
}
