package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// defaultGrace is how long before the end of its lease a command gets SIGTERM.
const defaultGrace = 10 * time.Second

// A wait is a duration, or "forever".
type wait time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *wait) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*w = wait(guard.Forever)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	*w = wait(d)
	if err != nil {
		return fmt.Errorf("%q is neither a duration such as 30s nor \"forever\"", text)
	}
	return nil
}

// options returns the options of the Guard for the flags.
func (r *runCommand) options(g *globals) []guard.Option {
	opts := []guard.Option{
		guard.WithTTL(r.TTL), guard.WithMargin(r.grace()), guard.WithWait(time.Duration(r.Wait)),
		guard.WithMinHold(r.MinHold), guard.WithMaxHold(r.MaxHold),
		guard.WithoutNamespace(), guard.WithNamespace(g.Namespace), guard.WithOwner(r.Owner),
	}
	switch {
	case r.OncePer != 0:
		opts = append(opts, guard.WithOncePer(r.OncePer))
	default:
		opts = append(opts, guard.WithOnce(r.Once))
	}
	if r.Label != "" {
		opts = append(opts, guard.WithLabel(r.Label))
	}
	if r.Fair {
		opts = append(opts, guard.WithFair())
	}
	switch {
	case r.Shared:
		opts = append(opts, guard.WithShared())
	case r.Limit != 0:
		opts = append(opts, guard.WithLimit(r.Limit))
	}
	return opts
}

// checkCodes refuses exit codes that would be another one: 256 would be 0.
func (r *runCommand) checkCodes() error {
	for name, code := range map[string]int{"-E": r.ConflictExitCode, "--done-exit": r.DoneExit} {
		if code < 0 || code > 255 {
			return fmt.Errorf("%s: %d must be from 0 to 255", name, code)
		}
	}
	return nil
}

// grace returns the grace period: by default ten seconds, or a third of the TTL if that is less.
func (r *runCommand) grace() time.Duration {
	if r.Grace == nil {
		return min(defaultGrace, max(r.TTL/3, 0))
	}
	return *r.Grace
}

// flags are the flags that set an option of the Guard.
var flags = map[string]string{
	"WithTTL": "--ttl", "WithWait": "--wait", "WithFair": "--fair", "WithShared": "--shared", "WithLimit": "--limit",
	"WithOnce": "--once", "WithOncePer": "--once-per", "WithMinHold": "--min-hold", "WithMaxHold": "--max-hold", "WithLabel": "--label",
	"WithOwner": "--owner", "WithMargin": "--grace", "WithNamespace": "--namespace", "nodes": "--redis", "WithPlainKeys": "--plain", "WithTable": "--store", "WithPrefix": "--store",
}

// noTable is what an error says if Migrate cures it.
const noTable = "call Migrate"

// tlsOfEtcd finds an error of etcd that may be one of TLS. A server closes the connection of a
// client that lacks TLS or a certificate.
var tlsOfEtcd = regexp.MustCompile(`etcd.*(tls: |server preface|broken pipe)`)

// goTypes finds what names a backend by its type in Go.
var goTypes = regexp.MustCompile(`the backend \(\*[\w.]+\)`)

// flagNames replaces the names of options by those of flags, longer names first: WithOncePer begins
// with WithOnce.
func flagNames() *strings.Replacer {
	var pairs []string
	for _, option := range slices.SortedFunc(maps.Keys(flags), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, option, flags[option])
	}
	return strings.NewReplacer(pairs...)
}

// asFlag returns the error of a setting as one of a flag, and other errors as they are, with what
// cures a table that is missing, and which flags TLS has.
func asFlag(err error) error {
	if err != nil && tlsOfEtcd.MatchString(err.Error()) {
		return fmt.Errorf("%w; TLS has tls=true in the URL, --tls-ca, --tls-cert and --tls-key", err)
	}
	if err != nil && strings.Contains(err.Error(), noTable) {
		return fmt.Errorf("%w; \"onerun migrate\" creates the table", err)
	}
	var bad *guard.SettingError
	if !errors.As(err, &bad) {
		return err
	}
	setting, _, _ := strings.Cut(bad.Setting, "(")
	name, ok := flags[setting]
	if !ok {
		return err
	}
	reason := goTypes.ReplaceAllString(flagNames().Replace(bad.Reason), "the backend")
	if bad.Value == "" {
		return fmt.Errorf("%s: %s", name, reason)
	}
	return fmt.Errorf("%s: %s %s", name, bad.Value, reason)
}
