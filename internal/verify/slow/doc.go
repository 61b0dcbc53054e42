// Package slow puts each store at a distance, and tells how long a round trip may take before that
// costs a lease: for the first call of a process, and for one that has connections.
package slow
