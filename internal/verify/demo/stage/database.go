package stage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// A Database is a file of bbolt: buckets of JSON under keys. Its transactions are real ones. All
// that a transaction writes is written, or nothing, and one transaction runs at a time.
//
// bbolt locks the file for as long as a process has it open. A Database therefore opens the file
// for each transaction. Several processes can use it, and one that is frozen between two
// transactions is in nobody's way.
type Database struct {
	file string
	mu   sync.Mutex // goroutines queue here, which costs less than trying again
}

// createDatabase makes a database with these buckets in the file, which must not exist.
func createDatabase(ctx context.Context, file string, buckets []string) (*Database, error) {
	switch _, err := os.Stat(file); {
	case err == nil:
		return nil, fmt.Errorf("-db %s: the file exists already; name a new one", file)
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("-db %s: %w", file, err)
	}
	db := OpenDatabase(file)
	err := db.Update(ctx, func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("-db %s: create the database: %w", file, err)
	}
	return db, nil
}

// OpenDatabase returns the database in the file, for this process beside others.
func OpenDatabase(file string) *Database { return &Database{file: file} }

// Update runs f in a transaction that can write. If f returns an error, nothing is written.
func (db *Database) Update(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return db.with(ctx, func(open *bbolt.DB) error { return open.Update(f) })
}

// View runs f in a transaction that only reads.
func (db *Database) View(ctx context.Context, f func(tx *bbolt.Tx) error) error {
	return db.with(ctx, func(open *bbolt.DB) error { return open.View(f) })
}

// patience is how long a transaction waits for the others at most.
const patience = 10 * time.Second

// with runs f while this process has the file.
func (db *Database) with(ctx context.Context, f func(*bbolt.DB) error) (err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	open, err := db.open(ctx)
	if err != nil {
		return fmt.Errorf("open database %s: %w", db.file, err)
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	return f(open)
}

// open opens the file as soon as no other process has it.
func (db *Database) open(ctx context.Context) (*bbolt.DB, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		open, err := bbolt.Open(db.file, 0o600, &bbolt.Options{
			Timeout: 1, // bbolt tries once: left to itself, it tries again after 50 ms
			// an example need not survive a power cut
			NoSync: true, NoGrowSync: true,
		})
		if !errors.Is(err, bolterrors.ErrTimeout) {
			return open, err
		}
		select {
		case <-time.After(500 * time.Microsecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Get returns the value under the key, or the zero value if there is none.
func Get[T any](tx *bbolt.Tx, bucket, key string) (value T, err error) {
	text := tx.Bucket([]byte(bucket)).Get([]byte(key))
	if text == nil {
		return value, nil
	}
	return value, json.Unmarshal(text, &value)
}

// Put writes the value under the key.
func Put(tx *bbolt.Tx, bucket, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(key), text)
}

// Append writes the value after those that the bucket has.
func Append(tx *bbolt.Tx, bucket string, value any) error {
	n, err := tx.Bucket([]byte(bucket)).NextSequence()
	if err != nil {
		return err
	}
	return Put(tx, bucket, string(binary.BigEndian.AppendUint64(nil, n)), value)
}

// All returns the values in the bucket, in the order of their keys.
func All[T any](tx *bbolt.Tx, bucket string) (all []T, err error) {
	err = tx.Bucket([]byte(bucket)).ForEach(func(_, text []byte) error {
		var value T
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		all = append(all, value)
		return nil
	})
	return all, err
}
