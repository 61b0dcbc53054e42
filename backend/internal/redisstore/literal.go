package redisstore

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Some services parse the Lua of scripts, and accept a key only as KEYS[1], KEYS[2] and so on in
// the call itself: Alibaba Cloud's Tair and Redis with script_check_enable. The literal form of a
// script is one that they accept. It serves one call, in more commands than the usual form.

var (
	luaComment   = regexp.MustCompile(`(?m)\s*--.*$`)
	ofCall       = regexp.MustCompile(`KEYS\[(2 \* i - 1|2 \* i|i|k \+ 1|k \+ 2)\]`)
	luaAssigns   = regexp.MustCompile(`(?m)^\s*(?:local )?([\w, ]+?) = (KEYS\[\d+\].*)$`)
	literalKey   = regexp.MustCompile(`^KEYS\[\d+\]$`)
	luaCall      = regexp.MustCompile(`(redis\.p?call\('[A-Z]+', )([\w.]+)`)
	luaDelete    = regexp.MustCompile(`(redis\.call\('(?:DEL|EXISTS)', KEYS\[\d+\], )(\w+)`)
	pubsubCall   = regexp.MustCompile(`redis\.pcall\('PUBSUB'[^)]*\)`)
	withoutAKey  = regexp.MustCompile(`^redis\.p?call\('(TIME|INFO|PUBLISH|SPUBLISH)'`)
	withALiteral = regexp.MustCompile(`^redis\.p?call\('[A-Z]+', KEYS\[\d+\]`)
	anyCall      = regexp.MustCompile(`redis\.p?call`)
)

// toLiteral returns the literal form of a script that serves one call, or "" if it has none. queue
// is the number of keys before those of the queue.
//
// The Lua keeps the keys in variables. A variable of one name always has the same key.
func toLiteral(source string, queue int) string {
	source = luaComment.ReplaceAllString(source, "")
	// nobody says how many subscribe: PUBSUB has no key
	source = pubsubCall.ReplaceAllString(source, "{err = ''}")
	numbers := map[string]int{"2 * i - 1": 1, "2 * i": 2, "i": 1, "k + 1": queue + 1, "k + 2": queue + 2}
	source = ofCall.ReplaceAllStringFunc(source, func(key string) string {
		return fmt.Sprintf("KEYS[%d]", numbers[ofCall.FindStringSubmatch(key)[1]])
	})
	keys := keysByName(source)
	if keys == nil {
		return ""
	}
	for _, calls := range []*regexp.Regexp{luaCall, luaDelete} {
		source = calls.ReplaceAllStringFunc(source, func(call string) string {
			m := calls.FindStringSubmatch(call)
			if key, ok := keys[m[2]]; ok {
				return m[1] + key
			}
			return call
		})
	}
	if !isLiteral(source) {
		return ""
	}
	return source
}

// keysByName returns the keys in the variables of a script, or nil if one variable has two.
func keysByName(source string) map[string]string {
	keys := map[string]string{"counter": "KEYS[2]"} // of grant.lua
	for _, m := range luaAssigns.FindAllStringSubmatch(source, -1) {
		values := strings.Split(m[2], ", ")
		for i, name := range strings.Split(m[1], ", ") {
			if i >= len(values) || !literalKey.MatchString(values[i]) {
				continue
			}
			if other, ok := keys[name]; ok && other != values[i] {
				return nil
			}
			keys[name] = values[i]
		}
	}
	return keys
}

// isLiteral reports whether each call of a script that has a key has a literal one.
func isLiteral(source string) bool {
	for _, at := range anyCall.FindAllStringIndex(source, -1) {
		if call := source[at[0]:]; !withoutAKey.MatchString(call) && !withALiteral.MatchString(call) {
			return false
		}
	}
	return !strings.Contains(source, "KEYS)")
}

// literalOf returns the literal form of a script, or the script itself, which the service refuses.
func literalOf(source string, queue int) (form, sha string) {
	if form = toLiteral(source, queue); form == "" {
		form = source
	}
	return form, redis.NewScript(form).Hash()
}

// refusesLua reports whether a service that parses the Lua of scripts has refused one.
func refusesLua(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "bad lua script")
}

// luaRefused is the error of such a service for a script that has no form that it accepts.
type luaRefused struct{ error }

func (e luaRefused) Error() string {
	return e.error.Error() + " (the service parses Lua, and does not accept this script: " +
		"set its parameter script_check_enable to 0)"
}

func (e luaRefused) Unwrap() error { return e.error }
