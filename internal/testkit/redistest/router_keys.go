package redistest

import (
	"hash/crc32"
	"strings"
	"testing"
)

// StartFirstKey starts a Router in front of several servers that sends a command to the server of
// its first key, as Envoy and twemproxy do. It hashes whole keys, without regard to hash tags.
func StartFirstKey(t testing.TB, servers ...string) *Router {
	return startRouter(t, servers, func(command []string) (int, string) {
		all := keysOf(command)
		if len(all) == 0 {
			return 0, ""
		}
		return serverOf(all[0], len(servers)), ""
	})
}

// StartOneSlot starts a Router like that of StartFirstKey, but it routes by the slots of a Cluster.
// It refuses a script that has keys in several slots.
func StartOneSlot(t testing.TB, servers ...string) *Router {
	return startRouter(t, servers, func(command []string) (int, string) {
		all := keysOf(command)
		for _, key := range all {
			if slot(key) != slot(all[0]) {
				return 0, "CROSSSLOT Keys in request don't hash to the same slot"
			}
		}
		if len(all) == 0 {
			return 0, ""
		}
		return slot(all[0]) * len(servers) / slots, ""
	})
}

func serverOf(key string, n int) int {
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(n)) //nolint:gosec // a small number
}

const slots = 16384

// slot returns the slot of a key in a Cluster.
func slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			high := crc & 0x8000
			crc <<= 1
			if high != 0 {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
