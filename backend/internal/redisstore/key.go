package redisstore

import (
	"fmt"
	"sync"
)

// tags is how many hash tags the keys of a store are spread over: enough that the slots of a
// Cluster are used evenly, and few enough that a fence counter for each costs nothing.
const tags = 1024

// LeaseKeys names the Redis keys of a lease: its own, and the fence counter that it shares with all
// keys of one hash tag, so that both are in one slot of a Cluster. The tag stands in front of the
// user's key, whose own braces therefore mean nothing.
func LeaseKeys(key string) (lease, fence string) {
	name := &names()[fnv1a(key)%tags]
	return name.lease + key, name.fence
}

// names are those of the keys of each tag, without the user's key.
var names = sync.OnceValue(func() *[tags]struct{ lease, fence string } {
	var all [tags]struct{ lease, fence string }
	for tag := range all {
		prefix := fmt.Sprintf("onerun:{%x}:", tag)
		all[tag].lease, all[tag].fence = prefix+"lease:", prefix+"fence"
	}
	return &all
})

// fnv1a is the 32-bit FNV-1a hash, as hash/fnv has it, of a string as it is.
func fnv1a(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
