package embedded

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// A DB is a database in a temporary file. It holds one value, as JSON. Its transactions are those
// of bbolt: one at a time, and each writes all or nothing.
type DB[T any] struct {
	bolt *bbolt.DB
	dir  string
}

var bucket, key = []byte("data"), []byte("value")

// Open makes a database with the value. The caller must call Close.
func Open[T any](value T) *DB[T] {
	dir, err := os.MkdirTemp("", "onerun-example-*")
	if err != nil {
		panic(err)
	}
	// NoSync: an example need not survive a power cut.
	bolt, err := bbolt.Open(filepath.Join(dir, "example.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	db := &DB[T]{bolt, dir}
	err = bolt.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucket)
		if err != nil {
			return err
		}
		return put(b, value)
	})
	if err != nil {
		panic(err)
	}
	return db
}

// Update runs f in a transaction and writes the value, also if f returns an error, which Update
// returns.
func (db *DB[T]) Update(f func(value *T) error) (err error) {
	failed := db.bolt.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		var value T
		if err := json.Unmarshal(b.Get(key), &value); err != nil {
			return err
		}
		err = f(&value)
		return put(b, value)
	})
	return errors.Join(err, failed)
}

// Read returns the value.
func (db *DB[T]) Read() (value T) {
	err := db.bolt.View(func(tx *bbolt.Tx) error { return json.Unmarshal(tx.Bucket(bucket).Get(key), &value) })
	if err != nil {
		panic(err)
	}
	return value
}

// Await waits until the value fulfils the condition, and for a minute at most.
func (db *DB[T]) Await(condition func(T) bool) {
	for end := time.Now().Add(time.Minute); !condition(db.Read()) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// Close closes the database, and removes its file.
func (db *DB[T]) Close() {
	if err := errors.Join(db.bolt.Close(), os.RemoveAll(db.dir)); err != nil {
		panic(err)
	}
}

func put[T any](b *bbolt.Bucket, value T) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, text)
}

// Must returns the value, and panics if there is an error. It keeps an example short.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
