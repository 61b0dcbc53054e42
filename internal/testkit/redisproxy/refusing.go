package redisproxy

import (
	"regexp"
	"strings"
	"testing"
)

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	call    = regexp.MustCompile(`redis\.p?call\(\s*([^,()]+)(?:,\s*([^,)]*))?`)
	calls   = regexp.MustCompile(`redis\.p?call`)
	index   = regexp.MustCompile(`KEYS\[([^\]]*)\]`)
	literal = regexp.MustCompile(`^KEYS\[\d+\]$`)
	number  = regexp.MustCompile(`^\d+$`)
	command = regexp.MustCompile(`^(?:'[A-Za-z_]+'|"[A-Za-z_]+")$`)
)

const refusal = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array"

// Refusal returns the error by which a service that parses scripts (Alibaba Cloud's Tair and Redis,
// script_check_enable) refuses one, or "". Each call has to have a literal KEYS[n] as its key,
// unless lenient is set: then only expressions as an index are refused.
func Refusal(script string, lenient bool) string {
	script = comment.ReplaceAllString(script, "")
	for _, m := range index.FindAllStringSubmatch(script, -1) {
		if !number.MatchString(strings.TrimSpace(m[1])) {
			return refusal + ", and KEYS should not be in expression"
		}
	}
	if strings.Contains(script, "(KEYS)") {
		return refusal + ", and KEYS should not be in expression"
	}
	if lenient {
		return ""
	}
	found := call.FindAllStringSubmatch(script, -1)
	if len(found) != len(calls.FindAllString(script, -1)) {
		return refusal
	}
	for _, m := range found {
		if !command.MatchString(strings.TrimSpace(m[1])) {
			return "ERR bad lua script for redis cluster, first parameter of redis.call/redis.pcall must be a single literal string"
		}
		switch strings.ToUpper(strings.Trim(m[1], `'"`)) {
		case "TIME", "PUBLISH", "SPUBLISH", "REPLICATE_COMMANDS", "INFO":
			continue
		}
		if !literal.MatchString(strings.TrimSpace(m[2])) {
			return refusal
		}
	}
	return ""
}

// Refusing starts a proxy in front of a server that refuses scripts as Refusal does.
func Refusing(t testing.TB, server string, lenient bool) *Proxy {
	return start(t, []string{server}, func(command []string) (int, string) {
		switch {
		case command[0] == "EVAL" && len(command) > 1:
			return 0, Refusal(command[1], lenient)
		case command[0] == "SCRIPT" && len(command) > 2 && strings.EqualFold(command[1], "LOAD"):
			return 0, Refusal(command[2], lenient)
		}
		return 0, ""
	})
}
