package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Values of entries begin with Entry.At in so many hexadecimal digits. So the server, which sorts
// values, returns the newest entries.
const atDigits = 16

func (l *Locker) log(name string) string { return l.prefix + entriesName + name + "\x00" }

func (l *Locker) counter(name, counter string) string {
	return l.prefix + counterName + name + "\x00" + counter
}

// Append implements driver.Ledger. An entry is a key, which is kept until enough others are newer.
func (l *Locker) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	_, err := call(ctx, l, driver.OpLedger, name, func(ctx context.Context) (none struct{}, err error) {
		for again := true; again && err == nil; {
			again, err = l.append(ctx, l.log(name), e, keep)
		}
		return none, err
	})
	return err
}

// append adds an entry, and drops the oldest ones. It returns true if it is to be called again:
// there is more to drop than one transaction can.
func (l *Locker) append(ctx context.Context, log string, e driver.Entry, keep int) (again bool, err error) {
	key := fmt.Sprintf("%s%x", log, sha256.Sum256(e.Record))
	found, err := l.readAll(ctx, []clientv3.Op{
		clientv3.OpGet(log, clientv3.WithRange(afterNUL(log)), clientv3.WithCountOnly()), clientv3.OpGet(key, clientv3.WithCountOnly()),
	})
	if err != nil {
		return false, err
	}
	value := fmt.Sprintf("%0*x%s", atDigits, e.At, e.Record)
	isNew := found[1].Count == 0
	over := int(found[0].Count) - keep
	if isNew {
		over++
	}
	var then []clientv3.Op
	if over > 0 {
		oldest, err := l.client.Get(ctx, log, clientv3.WithRange(afterNUL(log)), clientv3.WithLimit(int64(min(over, maxOps-1))),
			clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend))
		if err != nil {
			return false, err
		}
		drop := oldest.Kvs
		if isNew && len(drop) == over && bytes.Compare([]byte(value), drop[over-1].Value) < 0 {
			isNew, drop = false, drop[:over-1] // it would be one of the oldest
		}
		for _, kv := range drop {
			then = append(then, clientv3.OpDelete(string(kv.Key)))
		}
		again = over > maxOps-1
	}
	if isNew {
		then = append(then, clientv3.OpPut(key, value))
	}
	if len(then) == 0 {
		return false, nil
	}
	_, err = l.commit(ctx, l.client.Txn(ctx).Then(then...))
	return again, err
}

// EntriesOf implements driver.Ledger.
func (l *Locker) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	return call(ctx, l, driver.OpLedger, names[0], func(ctx context.Context) (logs [][]driver.Entry, err error) {
		var reads []clientv3.Op
		for _, name := range names {
			log := l.log(name)
			reads = append(reads, clientv3.OpGet(log, clientv3.WithRange(afterNUL(log)), clientv3.WithLimit(int64(max(n, 1))),
				clientv3.WithSort(clientv3.SortByValue, clientv3.SortDescend)))
		}
		answers, err := l.readAll(ctx, reads)
		for _, a := range answers {
			log := []driver.Entry{}
			for _, kv := range a.Kvs[:min(len(a.Kvs), max(n, 0))] {
				e, err := parseEntry(kv)
				if err != nil {
					return nil, err
				}
				log = append(log, e)
			}
			logs = append(logs, log)
		}
		return logs, err
	})
}

func parseEntry(kv *mvccpb.KeyValue) (e driver.Entry, err error) {
	if len(kv.Value) < atDigits {
		return e, fmt.Errorf("the key %q has %q: %w", kv.Key, kv.Value, errProtocol)
	}
	if e.At, err = strconv.ParseInt(string(kv.Value[:atDigits]), 16, 64); err != nil {
		return e, fmt.Errorf("the key %q: %w: %w", kv.Key, errProtocol, err)
	}
	e.Record = kv.Value[atDigits:]
	return e, nil
}

// Raise implements driver.Ledger. A counter is a key, which is kept forever.
func (l *Locker) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	return call(ctx, l, driver.OpLedger, name, func(ctx context.Context) (was int64, err error) {
		key := l.counter(name, counter)
		for range races {
			answer, err := l.client.Get(ctx, key)
			if err != nil {
				return 0, err
			}
			was, modified, err := parseCounter(answer.Kvs)
			if err != nil || was >= to {
				return was, err
			}
			put, err := l.commit(ctx, l.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", modified)).
				Then(clientv3.OpPut(key, strconv.FormatInt(to, 10))))
			if err != nil || put.Succeeded {
				return was, err
			}
		}
		return 0, errRaces
	})
}

// CountersOf implements driver.Ledger.
func (l *Locker) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	return call(ctx, l, driver.OpLedger, names[0], func(ctx context.Context) (values []int64, err error) {
		var reads []clientv3.Op
		for i, name := range names {
			reads = append(reads, clientv3.OpGet(l.counter(name, counters[i])))
		}
		answers, err := l.readAll(ctx, reads)
		for _, a := range answers {
			value, _, err := parseCounter(a.Kvs)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, err
	})
}

// parseCounter returns the value of a counter and the revision that has set it, or zeros.
func parseCounter(kvs []*mvccpb.KeyValue) (value, modified int64, err error) {
	for _, kv := range kvs {
		value, err = strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("the key %q: %w: %w", kv.Key, errProtocol, err)
		}
		modified = kv.ModRevision
	}
	return value, modified, nil
}
