//go:build !linux

package sqlite

// networkFileSystem returns "": only Linux is asked.
func networkFileSystem(string) string { return "" }
