package backend_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// answersWith returns a client of a server that answers "1" to scripts for few keys, and so to
// scripts for many.
func answersWith(t *testing.T, many string) *redis.Client {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerCommands(conn, many)
		}
	}()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func answerCommands(conn net.Conn, many string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		words, err := readCommand(in)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		if strings.EqualFold(words[0], "eval") { // from the probe of what can share a script
			answer = ":1\r\n"
		}
		if strings.EqualFold(words[0], "evalsha") {
			answer = ":1\r\n"
			if keys, _ := strconv.Atoi(words[2]); keys > 2 {
				answer = many
			}
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// readCommand reads an array of strings that have no line ends.
func readCommand(in *bufio.Reader) ([]string, error) {
	line := func() (string, error) {
		text, err := in.ReadString('\n')
		return strings.TrimSpace(text), err
	}
	first, err := line()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimPrefix(first, "*"))
	words := make([]string, n)
	for i := range words {
		if _, err = line(); err != nil { // its length
			return nil, err
		}
		if words[i], err = line(); err != nil {
			return nil, err
		}
	}
	return words, err
}

func TestTogether_answersThatAreMissingOrMakeNoSenseAreTheirCallersOnly(t *testing.T) {
	t.Parallel()
	const calls = 5
	for name, c := range map[string]struct {
		reply string
		good  int // how many callers have their answer: those of the fences 1, 2 and so on
	}{
		"one too few":    {"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n", 4},
		"one too many":   {"*6\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n", 5},
		"none":           {"*0\r\n", 0},
		"no list":        {":1\r\n", 0},
		"nothing":        {"$-1\r\n", 0},
		"one of nothing": {"*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n$-1\r\n", 4},
		"one of no use":  {"*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n*1\r\n:5\r\n", 4},
	} {
		for backend, open := range backends {
			t.Run(fmt.Sprint(name, ", ", backend), func(t *testing.T) {
				f := batcherOn(answersWith(t, c.reply), open)
				answers := f.together(t, many(calls, func(key string) op { return take(key, "id") })...)
				for i, a := range answers {
					if i < c.good {
						require.NoError(t, a.err)
						require.Equal(t, driver.Answer{State: driver.Granted, Fence: uint64(i + 1)}, a.grant)
						continue
					}
					require.NotEqual(t, driver.KindCanceled, a.kind(t))
					require.ErrorContains(t, a.err, fmt.Sprintf("acquire %q", fmt.Sprint("key", i)))
					if name != "nothing" { // which go-redis makes an error of its own of
						require.Equal(t, driver.KindProtocol, a.kind(t))
					}
				}
			})
		}
	}
}

func TestTogether_anErrorOfOneIsNotTheOthers(t *testing.T) {
	t.Parallel()
	for backend, open := range backends {
		t.Run(backend, func(t *testing.T) {
			f := batcherOn(answersWith(t, "*3\r\n:1\r\n$22\r\nREADONLY of a replica.\r\n:3\r\n"), open)
			answers := f.together(t, many(3, func(key string) op { return take(key, "id") })...)
			require.EqualValues(t, 1, answers[0].grant.Fence)
			require.Equal(t, driver.KindReadOnly, answers[1].kind(t))
			require.EqualValues(t, 3, answers[2].grant.Fence)
		})
	}
}

// A name may stand for another server after a failover. The connection on which a server says that
// it is a replica now is closed, also if it says so to many calls at once.
func TestTogether_aConnectionToADemotedMasterIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for backend, open := range backends {
		t.Run(backend, func(t *testing.T) {
			old, next := redistest.Start(t), redistest.Start(t)
			var master atomic.Value
			master.Store(old.Addr())
			f := batcherOn(old.Client(t, func(o *redis.Options) {
				o.PoolSize, o.PipelinePoolSize = 1, -1
				o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, master.Load().(string))
				}
			}), open)
			f.together(t, take("a", "id"), take("b", "id"))
			require.NoError(t, old.Client(t).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
			master.Store(next.Addr())
			ops := many(10, func(key string) op { return take(key, "id") })
			answers, _ := f.send(t, ops...)
			for _, a := range answers {
				require.Equal(t, driver.KindReadOnly, a.kind(t))
			}
			answers, _ = f.send(t, ops...)
			for _, a := range answers {
				require.NoError(t, a.err)
				require.Equal(t, driver.Granted, a.grant.State)
			}
		})
	}
}
