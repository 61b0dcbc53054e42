package redisstore

var (
	Bounded = bounded
	Integer = (*Store).integer
)

// DropUnused drops the nodes of a Cluster that have nothing to do. Adding a node drops those that
// had nothing to do for a minute.
func DropUnused(s *Store) {
	s.router.mu.Lock()
	defer s.router.mu.Unlock()
	s.router.drop(0)
}
