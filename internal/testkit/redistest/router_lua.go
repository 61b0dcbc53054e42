package redistest

import (
	"regexp"
	"strings"
	"testing"
)

var (
	luaComment = regexp.MustCompile(`--[^\n]*`)
	luaCall    = regexp.MustCompile(`redis\.p?call\(\s*([^,()]+)(?:,\s*([^,)]*))?`)
	luaCalls   = regexp.MustCompile(`redis\.p?call`)
	luaIndex   = regexp.MustCompile(`KEYS\[([^\]]*)\]`)
	luaLiteral = regexp.MustCompile(`^KEYS\[\d+\]$`)
	luaNumber  = regexp.MustCompile(`^\d+$`)
	luaCommand = regexp.MustCompile(`^(?:'[A-Za-z_]+'|"[A-Za-z_]+")$`)
)

const luaRefusal = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array"

// Refusal returns the error by which a service that parses scripts (Alibaba Cloud's Tair and Redis,
// script_check_enable) refuses one, or "". Each call has to have a literal KEYS[n] as its key,
// unless lenient is set: then only expressions as an index are refused.
func Refusal(script string, lenient bool) string {
	script = luaComment.ReplaceAllString(script, "")
	for _, m := range luaIndex.FindAllStringSubmatch(script, -1) {
		if !luaNumber.MatchString(strings.TrimSpace(m[1])) {
			return luaRefusal + ", and KEYS should not be in expression"
		}
	}
	if strings.Contains(script, "(KEYS)") {
		return luaRefusal + ", and KEYS should not be in expression"
	}
	if lenient {
		return ""
	}
	found := luaCall.FindAllStringSubmatch(script, -1)
	if len(found) != len(luaCalls.FindAllString(script, -1)) {
		return luaRefusal
	}
	for _, m := range found {
		if !luaCommand.MatchString(strings.TrimSpace(m[1])) {
			return "ERR bad lua script for redis cluster, first parameter of redis.call/redis.pcall must be a single literal string"
		}
		switch strings.ToUpper(strings.Trim(m[1], `'"`)) {
		case "TIME", "PUBLISH", "SPUBLISH", "REPLICATE_COMMANDS", "INFO":
			continue
		}
		if !luaLiteral.MatchString(strings.TrimSpace(m[2])) {
			return luaRefusal
		}
	}
	return ""
}

// StartRefusing starts a Router in front of a server. It refuses scripts as Refusal does.
func StartRefusing(t testing.TB, server string, lenient bool) *Router {
	return startRouter(t, []string{server}, func(command []string) (int, string) {
		switch {
		case command[0] == "EVAL" && len(command) > 1:
			return 0, Refusal(command[1], lenient)
		case command[0] == "SCRIPT" && len(command) > 2 && strings.EqualFold(command[1], "LOAD"):
			return 0, Refusal(command[2], lenient)
		}
		return 0, ""
	})
}
