package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// unconnectedLimit is for a connection that comes just then.
const unconnectedLimit = 100 * time.Millisecond

// errProtocol means that an answer made no sense.
var errProtocol = errors.New("the answer made no sense")

// storeError returns the error of an operation on a key.
func (l *Locker) storeError(ctx context.Context, op driver.Op, key string, err error) *driver.StoreError {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	kind, err := explain(err)
	if kind == driver.KindTimeout {
		if cause := l.unconnected(); cause != nil {
			kind, err = driver.KindConnection, fmt.Errorf("%w: %w", err, cause)
		}
	}
	return &driver.StoreError{Backend: name, Op: op, Key: key, Addr: l.addr, Kind: kind, Err: err}
}

// unconnected returns why no server is connected, or nil. The client does not tell: it has calls
// wait until their time has passed. A request that does not wait fails with the reason, unsent.
func (l *Locker) unconnected() error {
	connection := l.client.ActiveConnection()
	if connection.GetState() != connectivity.TransientFailure {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), unconnectedLimit)
	defer cancel()
	_, err := pb.NewKVClient(connection).Range(ctx, &pb.RangeRequest{Key: []byte(l.prefix)}, grpc.WaitForReady(false))
	if status.Code(err) != codes.Unavailable {
		return nil
	}
	return remedy(err)
}

// withKey returns the error of a batch for one of its claims.
func withKey(err error, key string) error {
	var store *driver.StoreError
	if errors.As(err, &store) {
		one := *store
		one.Key = key
		return &one
	}
	return err
}

// kinds are the kinds of errors of etcd.
var kinds = map[driver.StoreErrorKind][]error{
	driver.KindOOM:        {rpctypes.ErrNoSpace},
	driver.KindReadOnly:   {rpctypes.ErrNotCapable},
	driver.KindLimit:      {rpctypes.ErrTooManyRequests},
	driver.KindSettings:   {rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps},
	driver.KindTimeout:    {rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex},
	driver.KindConnection: {rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrStopped, rpctypes.ErrUnhealthy},
	driver.KindAuth: {
		rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrPermissionNotGranted,
	},
}

// explain returns the kind of an error, and a remedy if there is one.
func explain(err error) (driver.StoreErrorKind, error) {
	var setting *driver.SettingError
	switch {
	case errors.As(err, &setting):
		return driver.KindSettings, err
	case errors.Is(err, context.DeadlineExceeded):
		return driver.KindTimeout, err
	case errors.Is(err, errProtocol):
		return driver.KindProtocol, err
	}
	for kind, all := range kinds {
		for _, e := range all {
			if is(err, e) {
				return kind, remedy(err)
			}
		}
	}
	switch code := status.Code(err); {
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled, err
	case code == codes.Canceled: // but not by the caller: clientv3 closes its connection so
		return driver.KindClosed, err
	case code == codes.DeadlineExceeded:
		return driver.KindTimeout, err
	case code == codes.Unavailable:
		return driver.KindConnection, remedy(err)
	case code == codes.Unauthenticated, code == codes.PermissionDenied:
		return driver.KindAuth, err
	case code == codes.Unimplemented:
		return driver.KindUnsupported, err
	}
	return driver.KindOther, err
}

func remedy(err error) error {
	switch {
	case is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("the servers accept no writes until they were compacted and defragmented, and the alarm was disarmed: %w", err)
	case is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("the record or the label needs a larger --max-request-bytes: %w", err)
	case contains(err, "tls: "): // gRPC keeps only the text
		return fmt.Errorf("TLS fails (clientv3.Config.TLS): %w", err)
	case contains(err, "server preface", "broken pipe"):
		return fmt.Errorf("the server has closed the connection, which may want TLS or a certificate (clientv3.Config.TLS): %w", err)
	}
	return err
}

func contains(err error, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}
