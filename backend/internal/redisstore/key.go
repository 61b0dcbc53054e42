package redisstore

import (
	"fmt"
	"sync"
)

// tags is how many hash tags the keys of a store are spread over: enough that the slots of a
// Cluster are used evenly, and few enough that a fence counter for each costs nothing.
const tags = 1024

// LeaseKeys names the Redis keys of a lease: its own, and the fence counter that it shares with
// all keys of one hash tag, so that both are in one slot of a Cluster. The tag stands in front of
// the user's key, whose own braces therefore mean nothing.
func LeaseKeys(key string) (lease, fence string) {
	prefix, fence := LeasePrefix(key)
	return prefix + key, fence
}

// LeasePrefix returns what LeaseKeys puts in front of the key, and the fence counter.
func LeasePrefix(key string) (lease, fence string) {
	name := &names()[fnv1a(key)%tags]
	return name.lease, name.fence
}

// A longName is a key in two parts, which are put together where it is sent: there is room for
// that in a request which is used again.
type longName struct {
	prefix, rest string
	text         []byte
}

// MarshalBinary is encoding.BinaryMarshaler's, by which go-redis asks for an argument. The text
// stands until the next call.
func (n *longName) MarshalBinary() ([]byte, error) {
	n.text = append(append(n.text[:0], n.prefix...), n.rest...)
	return n.text, nil
}

func (n *longName) String() string { return n.prefix + n.rest }

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
