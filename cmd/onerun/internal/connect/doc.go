// Package connect turns the addresses and the backend that the user names into a guard.Locker.
//
//	servers, err := connect.Open(connect.Config{URLs: []string{"redis://127.0.0.1:6379"}})
//
// It does not contact a server, except an etcd that has to check a password.
package connect
