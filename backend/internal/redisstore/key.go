package redisstore

import (
	"fmt"
	"hash/fnv"
)

// tags is how many hash tags the keys of a store are spread over: enough that the slots of a
// Cluster are used evenly, and few enough that a fence counter for each costs nothing.
const tags = 1024

// LeaseKeys names the Redis keys of a lease: its own, and the fence counter that it shares with all
// keys of one hash tag, so that both are in one slot of a Cluster. The tag stands in front of the
// user's key, whose own braces therefore mean nothing.
func LeaseKeys(key string) (lease, fence string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	prefix := fmt.Sprintf("onerun:{%x}:", h.Sum32()%tags)
	return prefix + "lease:" + key, prefix + "fence"
}
