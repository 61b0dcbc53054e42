package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/inspect"
)

// keyCommand is "onerun key": what it prints is an argument of other commands.
type keyCommand struct {
	HTTP     keyHTTP     `cmd:"" name:"http" help:"The key of a request, by package guardhttp."`
	GRPC     keyGRPC     `cmd:"" name:"grpc" help:"The key of a call, by package guardgrpc."`
	Asynq    keyAsynq    `cmd:"" name:"asynq" help:"The key of a task, by package guardasynq."`
	Cron     keyCron     `cmd:"" name:"cron" help:"The key of a job, by package guardcron, or guardgocron with --gocron."`
	Redacted keyRedacted `cmd:"" name:"redacted" help:"The keys whose redacted form a log line or a span has. It scans the store."`
}

// idempotent are the settings of guardhttp and guardgrpc that are part of a key.
type idempotent struct {
	Scope     string `help:"What the function of WithScope returns for the client."`
	Group     string `help:"The name of WithGroup, if it is used."`
	Exclusive bool   `help:"The mode is Exclusive."`
}

// key returns the key of an adapter. It is that of middleware/internal/idempotent.
func (k idempotent) key(adapter, key string, place ...string) string {
	kind := "once"
	if k.Exclusive {
		kind = "exclusive"
	}
	if k.Group != "" {
		place = []string{"group", k.Group}
	}
	return adapter + ":" + hashOf(append(append([]string{kind, k.Scope}, place...), key)...)
}

// hashOf is keys.Hash of the middlewares, as they print it.
func hashOf(parts ...string) string {
	var all []byte
	for _, p := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(p)))
		all = append(all, p...)
	}
	sum := sha256.Sum256(all)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

type keyHTTP struct {
	idempotent

	Host   string `help:"The host in the pattern of the route, if it has one."`
	Method string `arg:"" help:"The method, such as POST."`
	Path   string `arg:"" help:"The path that the client sends."`
	Key    string `arg:"" help:"The key that the client sends."`

	Stripped string `placeholder:"PATH" help:"The path that the middleware sees, if it is behind http.StripPrefix."`
}

// Run prints the key.
func (c *keyHTTP) Run(g *globals) error {
	u, err := url.ParseRequestURI(c.Path)
	if err != nil {
		return fmt.Errorf("PATH: %q is no path such as /claims", c.Path)
	}
	sent := u.EscapedPath()
	seen := sent
	if c.Stripped != "" {
		seen = c.Stripped
	}
	return g.printKey(c.key("http", c.Key, "path", c.Host, strings.ToUpper(c.Method), sent, seen))
}

type keyGRPC struct {
	idempotent

	Method string `arg:"" help:"The full method, such as /shop.Orders/Create."`
	Key    string `arg:"" help:"The key that the client sends."`
}

// Run prints the key.
func (c *keyGRPC) Run(g *globals) error {
	return g.printKey(c.key("grpc", c.Key, "method", c.Method))
}

type keyAsynq struct {
	Group string `help:"The name of WithGroup, if it is used."`
	Once  bool   `help:"The key of WithOnce, instead of the one that keeps tasks apart."`
	Type  string `arg:"" help:"The type of the task."`
	Key   string `arg:"" help:"What the KeyFunc returns: \"type\" for ByType, \"payload:\" and the payload for ByPayload, the value for ByJSON."`
}

// Run prints the key.
func (c *keyAsynq) Run(g *globals) error {
	use := ""
	if c.Once {
		use = "once "
	}
	kind, name := use+"kind", c.Type
	if c.Group != "" {
		kind, name = use+"group", c.Group
	}
	return g.printKey("asynq:" + hashOf(kind, name, c.Key))
}

type keyCron struct {
	Gocron bool   `help:"A job of gocron."`
	Job    string `arg:"" help:"The name of the job."`
}

// Run prints the key.
func (c *keyCron) Run(g *globals) error {
	if c.Gocron {
		return g.printKey("gocron:" + c.Job)
	}
	return g.printKey("cron:" + c.Job)
}

func (g *globals) printKey(key string) error {
	return g.print(map[string]any{"key": key, "key_bytes": bytesOf(key)}, func(w *terminal.Page) { w.Line("%s", key) })
}

type keyRedacted struct {
	Form string `arg:"" help:"What the log line says, such as 9f86d081884c7d65."`
}

// maxScanned bounds the keys that a search looks at.
const maxScanned = 1_000_000

// Run prints the keys that have the redacted form of tracing.Redact.
func (c *keyRedacted) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		found, scanned := []string{}, 0
		for cursor, more := "", true; more && scanned < maxScanned; {
			keys, next, err := i.List(ctx, "", cursor, pageSize)
			if err != nil {
				return err
			}
			for _, k := range keys {
				if scanned++; redacted(k.Name) == c.Form || redacted(i.Namespace()+":"+k.Name) == c.Form {
					found = append(found, k.Name)
				}
			}
			cursor, more = next, next != ""
		}
		err := g.print(map[string]any{"keys": found}, func(w *terminal.Page) {
			if len(found) == 0 {
				w.Line("no key that is held, kept or done has the redacted form %s", c.Form)
			}
			for _, key := range found {
				w.Line("%s", key)
			}
		})
		if err == nil && len(found) == 0 {
			err = exit(exitNothing)
		}
		return err
	})
}

// redacted is tracing.Redact, without OpenTelemetry.
func redacted(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
