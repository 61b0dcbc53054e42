package doctor

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// facts are the fields of INFO, or nil if the user has no right to it.
type facts map[string]string

// readFacts asks for INFO.
func readFacts(ctx context.Context, client *redis.Client) facts {
	text, err := client.Info(ctx).Result()
	if err != nil {
		return nil
	}
	f := facts{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}

func (f facts) text(name string) string { return f[name] }

func (f facts) number(name string) int {
	n, _ := strconv.Atoi(f[name])
	return n
}

// config asks for a setting. It returns "" if the user has no right to it.
func config(ctx context.Context, client *redis.Client, name string) string {
	values, err := client.ConfigGet(ctx, name).Result()
	if err != nil {
		return ""
	}
	return values[name]
}
