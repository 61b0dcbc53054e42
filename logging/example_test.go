package logging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/logging"
)

// A duplicate is no error: it is logged at the level Debug.
func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // what is the same each time
			if slices.Contains([]string{"msg", "key", "reason", "holder", "result"}, a.Key) {
				return a
			}
			return slog.Attr{}
		},
	}))

	hook, err := logging.New(logger)
	if err != nil {
		panic(err)
	}
	g, err := guard.New(memory.New(), guard.WithHook(hook), guard.WithName("job"), guard.WithLabel("w"))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())

	for range 2 {
		err = g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil }, guard.WithOnce(time.Hour))
	}
	fmt.Println(errors.Is(err, guard.ErrDone))
	// Output:
	// msg="lease acquired" onerun.key=262b85d2b8121311 onerun.result=acquired
	// msg="run ended" onerun.key=262b85d2b8121311 onerun.result=ok
	// msg="lease released" onerun.key=262b85d2b8121311 onerun.result=released
	// msg="duplicate skipped" onerun.key=262b85d2b8121311 onerun.reason=done onerun.holder=w
	// true
}

// The keys of this service are no secrets, so its logs name them.
func ExampleWithRedactor() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "key" {
				return a
			}
			return slog.Attr{}
		},
		Level: slog.LevelDebug,
	}))
	hook, err := logging.New(logger, logging.WithRedactor(func(s string) string { return s }))
	if err != nil {
		panic(err)
	}
	g, err := guard.New(memory.New(), guard.WithHook(hook))
	if err != nil {
		panic(err)
	}
	defer g.Close(context.Background())
	fmt.Println(g.Do(context.Background(), "report:2026-11-21", func(context.Context) error { return nil }))
	// Output:
	// onerun.key=report:2026-11-21
	// onerun.key=report:2026-11-21
	// onerun.key=report:2026-11-21
	// <nil>
}
