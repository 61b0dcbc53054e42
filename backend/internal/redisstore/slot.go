package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of slots of a Redis Cluster.
const slots = 16384

// HashTag returns the part of a name that chooses its slot in a Redis Cluster. That is the text
// between the first opening brace and the next closing one. Without such text, it is the whole
// name. See "Hash tags" in the Redis Cluster specification.
func HashTag(name string) string {
	_, after, ok := strings.Cut(name, "{")
	if !ok {
		return name
	}
	tag, _, ok := strings.Cut(after, "}")
	if !ok || tag == "" {
		return name
	}
	return tag
}

// Slot returns the slot of a key in a Redis Cluster.
func Slot(key string) int { return int(crc16(HashTag(key)) % slots) }

// crc16 returns the CRC-16/XMODEM checksum, as the Redis Cluster specification requires.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			high := crc & 0x8000
			crc <<= 1
			if high != 0 {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

// slotTags returns a short hash tag for each slot.
var slotTags = sync.OnceValue(func() []string { return spreadTags(slots) })

// spreadTags returns n short hash tags that are spread evenly over the slots.
func spreadTags(n int) []string {
	found := make([]string, n)
	for i, missing := 0, n; missing > 0; i++ {
		tag := strconv.FormatInt(int64(i), 36)
		if part := Slot(tag) * n / slots; found[part] == "" {
			found[part] = tag
			missing--
		}
	}
	return found
}

// FenceKeyBeside returns the fence counter in the slot of a key. There is one for each slot on any
// server, because a proxy may hide a Cluster.
func FenceKeyBeside(key string) string { return "onerun:{" + slotTags()[Slot(key)] + "}:fence" }

// Own reports whether a key may be one that LeaseKeys or FenceKeyBeside returns.
func Own(key string) bool { return strings.HasPrefix(key, "onerun:{") }
