package redistest_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// once makes a client show each fault: it tries neither a command nor a dial again.
func once(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }

// proxied is a server, a proxy before it, and a client of each; the proxied one is connected.
func proxied(t *testing.T, configure ...func(*redis.Options)) (proxy *redistest.Proxy, through, direct *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	proxy = redistest.StartProxy(t, server.Addr())
	through, direct = proxy.Client(t, append([]func(*redis.Options){once}, configure...)...), server.Client(t)
	require.NoError(t, through.Ping(ctx).Err())
	return proxy, through, direct
}

// background runs a command on its own and returns the channel of its error.
func background(command func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- command() }()
	return done
}

// requireSilent checks that a command gets no answer for a while.
func requireSilent(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("answered: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
}

func requireDone(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("no answer")
	}
}

func set(client *redis.Client, key string) func() error {
	return func() error { return client.Set(ctx, key, "1", 0).Err() }
}

func TestProxy_passesEverythingOn(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			proxy, client, direct := proxied(t, func(o *redis.Options) { o.Protocol = protocol })
			big := string(make([]byte, 1<<20))
			require.NoError(t, client.Set(ctx, "big", big, 0).Err())
			require.Equal(t, big, client.Get(ctx, "big").Val())
			require.ErrorIs(t, client.Get(ctx, "none").Err(), redis.Nil)
			require.NoError(t, client.HSet(ctx, "h", "a", 1, "b", 2).Err())
			require.Equal(t, map[string]string{"a": "1", "b": "2"}, client.HGetAll(ctx, "h").Val())
			require.NoError(t, client.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}).Err())
			require.InEpsilon(t, 1.5, client.ZScore(ctx, "z", "m").Val(), 1e-9)
			require.ErrorContains(t, client.Do(ctx, "nonsense").Err(), "unknown command")
			require.Equal(t, []any{nil, int64(7), []any{"x"}}, client.Eval(ctx, "return {false, 7, {'x'}}", nil).Val())

			subscription := client.Subscribe(ctx, "news")
			defer subscription.Close()
			_, err := subscription.Receive(ctx)
			require.NoError(t, err)
			require.NoError(t, subscription.Ping(ctx))
			require.NoError(t, direct.Publish(ctx, "news", "hello").Err())
			message, err := subscription.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, "hello", message.Payload)
			require.Equal(t, 2, proxy.Conns())
		})
	}
}

func TestProxy_delaysEachReplyOnce(t *testing.T) {
	const d = 60 * time.Millisecond
	proxy, client, _ := proxied(t)
	pipelined := func() {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 20 {
				p.Set(ctx, fmt.Sprint(i), i, 0)
			}
			return nil
		})
		require.NoError(t, err)
	}
	pipelined() // connects the pipeline's pool
	for _, delay := range []func(time.Duration){proxy.Delay, proxy.DelayRequests} {
		delay(d)
		begun := time.Now()
		redistest.Within(t, 10*d, "twenty replies that are delayed together", pipelined)
		require.GreaterOrEqual(t, time.Since(begun), d)
		delay(0)
		redistest.Within(t, d, "twenty replies without a delay", pipelined)
	}

	proxy.Delay(time.Hour)
	done := background(set(client, "k"))
	requireSilent(t, done)
	proxy.Delay(0)
	requireDone(t, done)
}

func TestProxy_cutResetsWhatIsConnected(t *testing.T) {
	proxy, client, _ := proxied(t)
	raw, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	defer raw.Close()
	_, err = io.WriteString(raw, "PING\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(raw, make([]byte, len("+PONG\r\n")))
	require.NoError(t, err)
	require.Equal(t, 2, proxy.Conns())

	proxy.Cut()
	_, err = raw.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Eventually(t, func() bool { return client.Ping(ctx).Err() == nil }, soon, step, "new connections are let in")
	require.GreaterOrEqual(t, proxy.Conns(), 3)
}

func TestProxy_dropsTheReplyToANamedCommandThatWasExecuted(t *testing.T) {
	proxy, client, direct := proxied(t)
	proxy.DropReplyTo("SET", 2)
	require.NoError(t, client.Incr(ctx, "n").Err(), "other commands are not meant")
	require.Error(t, client.Set(ctx, "a", "1", 0).Err())
	require.Error(t, client.Set(ctx, "b", "1", 0).Err(), "not even on a new connection: its handshake passed")
	require.NoError(t, client.Set(ctx, "c", "1", 0).Err())
	require.Equal(t, int64(3), direct.Exists(ctx, "a", "b", "c").Val())
}

func TestProxy_droppedReplyMakesGoRedisLie(t *testing.T) {
	proxy, client, direct := proxied(t, func(o *redis.Options) { o.MaxRetries = 3 })
	proxy.DropReplyTo("set", 1)
	got, err := client.SetNX(ctx, "lock", "mine", time.Minute).Result()
	require.NoError(t, err)
	require.False(t, got, "the retry finds the key of the first try: redis/go-redis#2985")
	require.Equal(t, "mine", direct.Get(ctx, "lock").Val())
}

func TestProxy_dropsOneReplyOfAPipeline(t *testing.T) {
	proxy, client, direct := proxied(t)
	proxy.DropReplyTo("evalsha", 1)
	sha := direct.ScriptLoad(ctx, "return redis.call('incr', 'ran')").Val()
	commands, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "first", "1", 0)
		p.Get(ctx, "first")
		p.EvalSha(ctx, sha, nil)
		p.Set(ctx, "last", "1", 0)
		return nil
	})
	require.Error(t, err)
	require.Equal(t, "OK", commands[0].(*redis.StatusCmd).Val())
	require.Equal(t, "1", commands[1].(*redis.StringCmd).Val())
	require.Error(t, commands[2].Err())
	require.Error(t, commands[3].Err())
	require.Equal(t, "1", direct.Get(ctx, "ran").Val())
}

func TestProxy_dropRepliesMeetsHandshakesToo(t *testing.T) {
	proxy, client, direct := proxied(t)
	proxy.DropReplies(2)
	require.Error(t, set(client, "a")())
	require.Error(t, set(client, "b")(), "the reply to HELLO")
	require.NoError(t, set(client, "c")())
	require.Equal(t, int64(2), direct.Exists(ctx, "a", "b", "c").Val())
}

func TestProxy_dropsPushesAndLeavesTheConnection(t *testing.T) {
	proxy, client, direct := proxied(t)
	subscription := client.Subscribe(ctx, "news")
	defer subscription.Close()
	proxy.DropPushes(1)
	_, err := subscription.Receive(ctx)
	require.NoError(t, err, "the confirmation passes")
	require.NoError(t, direct.Publish(ctx, "news", "lost").Err())
	require.NoError(t, direct.Publish(ctx, "news", "found").Err())
	message, err := subscription.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "found", message.Payload)
}

func TestProxy_holdsRepliesUntilReleased(t *testing.T) {
	proxy, client, direct := proxied(t)
	for name, hold := range map[string]func(){
		"all": proxy.HoldReplies, "named": func() { proxy.HoldReplyTo("Set") },
	} {
		hold()
		done := background(set(client, name))
		require.Eventually(t, func() bool { return direct.Exists(ctx, name).Val() == 1 }, soon, step)
		requireSilent(t, done)
		proxy.ReleaseReplies()
		requireDone(t, done)
	}
	proxy.HoldReplyTo("set")
	require.NoError(t, client.Get(ctx, "all").Err(), "other commands are not meant")
}
