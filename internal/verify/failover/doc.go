// Package failover runs one fault on each store: the server that has granted a lease is killed
// right after the answer, another one takes over, and another process asks for the key. It counts
// leases that were forgotten.
package failover
