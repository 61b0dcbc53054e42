package redisstore

import (
	"fmt"
	"strings"
	"sync"
)

// tags is the number of hash tags for the keys of a store. It is large enough to use the slots of
// a Cluster evenly, and small enough that a fence counter for each tag costs almost nothing.
const tags = 1024

// LeaseKeys returns the Redis keys of a lease: its own, and that of its fence counter. All keys of
// a hash tag share a counter, so both are in one slot of a Cluster. The tag comes before the
// user's key, so braces in that key have no effect.
func LeaseKeys(key string) (lease, fence string) {
	prefix, fence := LeasePrefix(key)
	return prefix + key, fence
}

// LeasePrefix returns the prefix of the lease's Redis key, and the fence counter.
func LeasePrefix(key string) (lease, fence string) {
	name := &names()[fnv1a(key)%tags]
	return name.lease, name.fence
}

// SharingKeys returns the Redis keys that describe the claims which share a key: holders, limits
// and wanted. They are in the slot of its fence counter.
func SharingKeys(fence, key string) []string {
	prefix := strings.TrimSuffix(fence, "fence")
	return []string{prefix + "holders:" + key, prefix + "limits:" + key, WantedKey(fence, key)}
}

// WantedKey returns the Redis key of wanted.lua, in the slot of the fence counter.
func WantedKey(fence, key string) string { return strings.TrimSuffix(fence, "fence") + "wanted:" + key }

// A prefixed key has two parts, which are joined when the key is sent. A request that is used
// again has room for the text, so that joining allocates nothing.
type prefixed struct {
	prefix, rest string
	text         []byte
}

// MarshalBinary implements encoding.BinaryMarshaler. go-redis calls it for the text of an
// argument. The text is valid until the next call.
func (k *prefixed) MarshalBinary() ([]byte, error) {
	k.text = append(append(k.text[:0], k.prefix...), k.rest...)
	return k.text, nil
}

func (k *prefixed) String() string { return k.prefix + k.rest }

// names returns the Redis keys of each tag, without the user's key.
var names = sync.OnceValue(func() *[tags]struct{ lease, fence string } {
	var all [tags]struct{ lease, fence string }
	for tag := range all {
		prefix := fmt.Sprintf("onerun:{%x}:", tag)
		all[tag].lease, all[tag].fence = prefix+"lease:", prefix+"fence"
	}
	return &all
})

// fnv1a returns the 32-bit FNV-1a hash of a string. hash/fnv would need a copy of it.
func fnv1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
