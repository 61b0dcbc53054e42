package rediserr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// reply is an error that a server has answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestKindOf_tellsErrorsApart(t *testing.T) {
	for want, errs := range map[driver.StoreErrorKind][]error{
		driver.KindTimeout: {context.DeadlineExceeded, os.ErrDeadlineExceeded,
			&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}},
		driver.KindCanceled:      {context.Canceled, fmt.Errorf("dial: %w", context.Canceled)},
		driver.KindConnection:    {io.EOF, io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}},
		driver.KindPoolExhausted: {redis.ErrPoolTimeout, redis.ErrPoolExhausted},
		driver.KindClosed:        {redis.ErrClosed},
		driver.KindLimit:         {reply("ERR max number of clients reached")},
		driver.KindOOM: {reply("OOM command not allowed when used memory > 'maxmemory'."),
			reply("ERR Error running script (call to f_1): @user_script:21: @user_script: 21: -OOM command not allowed when used memory > 'maxmemory'.")},
		driver.KindNotPersisted: {reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.")},
		driver.KindReadOnly:     {reply("READONLY You can't write against a read only replica."), reply("MASTERDOWN Link with MASTER is down")},
		driver.KindLoading:      {reply("LOADING Redis is loading the dataset in memory")},
		driver.KindScriptBusy:   {reply("BUSY Redis is busy running a script.")},
		driver.KindMoved: {reply("MOVED 3999 127.0.0.1:6381"), reply("ASK 3999 127.0.0.1:6381"),
			reply("TRYAGAIN Multiple keys request during rehashing of slot"), reply("CLUSTERDOWN The cluster is down")},
		driver.KindNoReplicas: {reply("NOREPLICAS Not enough good replicas to write.")},
		driver.KindAuth: {reply("NOAUTH Authentication required."), reply("WRONGPASS invalid username-password pair or user is disabled."),
			reply("NOPERM this user has no permissions to run the 'evalsha' command"), reply("ERR invalid password"), reply("ERR Protocol error: unauthenticated multibulk length")},
		driver.KindWrongType: {reply("WRONGTYPE Operation against a key holding the wrong kind of value"),
			reply("ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation against a key holding the wrong kind of value")},
		driver.KindUnsupported: {reply("ERR unknown command 'EVALSHA', with args beginning with: "),
			reply("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array")},
		driver.KindOther: {errors.New("something"), reply("ERR something")},
	} {
		for _, err := range errs {
			require.Equal(t, want, rediserr.KindOf(err), "%v", err)
		}
	}
}
