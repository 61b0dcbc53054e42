package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/backend/etcd"
)

const (
	// etcdScheme begins the URL of an etcd.
	etcdScheme = "etcd://"
	etcdPort   = "2379"
	useEtcd    = ": use etcd://host:2379,host:2379, or etcd://user:password@host:2379?tls=true"
	// etcdPatience is how long a server may take to check a password, or to show that it is alive.
	etcdPatience = 5 * time.Second
)

func isEtcd(address string) bool { return strings.HasPrefix(address, etcdScheme) }

// The errors of a URL. They stand for those of parsers, which could quote a password.
var (
	errEtcdURL   = errors.New("it cannot be read" + useEtcd + " (in a user or password, escape special characters: / is %2F, # is %23)")
	errEtcdHost  = errors.New("each of its servers must be a host, or a host and a port" + useEtcd)
	errEtcdUser  = errors.New("a user needs a password" + useEtcd)
	errEtcdTLS   = errors.New("its parameter tls must be true or false" + useEtcd)
	errEtcdQuery = errors.New("its parameters cannot be used: they are prefix and tls" + useEtcd)
)

// openEtcd sets the client and the Locker of s. It contacts a server if the URL has a password.
func (s *Servers) openEtcd(c Config) error {
	switch {
	case len(c.URLs) > 1:
		return errors.New("--redis: a URL of etcd must be the only one: put all servers into it, as in etcd://host:2379,host:2379")
	case c.Backend != "" && c.Backend != Single:
		return errors.New("--backend: " + c.Backend + " is a backend on Redis, and the URL names etcd")
	case c.Plain != "":
		return errors.New("--plain: has no effect on etcd: no other library has its locks below our prefix")
	}
	config, opts, err := parseEtcd(c.URLs[0])
	if err != nil {
		return badURL(0, 1, err)
	}
	if config.TLS == nil && !c.TLS.isZero() {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := c.TLS.apply(config.TLS); err != nil {
		return err
	}
	s.Address = strings.Join(config.Endpoints, ",")
	s.Unverified = config.TLS == nil && slices.ContainsFunc(config.Endpoints, func(endpoint string) bool {
		host, _, _ := net.SplitHostPort(endpoint)
		return !isLocal(host)
	})
	config.Logger = zap.NewNop()
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	config.DialTimeout, config.DialKeepAliveTime, config.DialKeepAliveTimeout = etcdPatience, etcdPatience, etcdPatience
	switch s.Etcd, err = clientv3.New(*config); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("--redis: etcd at %s has not checked the password in %v", s.Address, etcdPatience)
	case err != nil:
		return fmt.Errorf("--redis: etcd at %s: %w", s.Address, err)
	}
	locker := etcd.New(s.Etcd, opts...)
	s.Locker = locker
	return locker.Describe().Err
}

// failFast has a call fail with the reason if no server can be connected. The client would have it
// wait, and then say that its time has passed.
func failFast(
	ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return call(ctx, method, request, answer, cc, append(slices.Clip(opts), grpc.WaitForReady(false))...)
}

// parseEtcd returns the configuration of etcd://user:password@host:port,host:port?prefix=P&tls=true,
// and the options of the backend.
func parseEtcd(address string) (*clientv3.Config, []etcd.Option, error) {
	rest, query, _ := strings.Cut(strings.TrimPrefix(address, etcdScheme), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, errEtcdQuery
	}
	config, opts := &clientv3.Config{}, []etcd.Option(nil)
	for name := range values {
		switch value := values.Get(name); {
		case name == "prefix":
			opts = append(opts, etcd.WithPrefix(value))
		case name == "tls" && value == "true":
			config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		case name == "tls" && value != "false":
			return nil, nil, errEtcdTLS
		case name != "tls":
			return nil, nil, errEtcdQuery
		}
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		u, err := url.Parse(etcdScheme + rest[:at] + "@host")
		if err != nil || u.Host != "host" {
			return nil, nil, errEtcdURL
		}
		config.Username = u.User.Username()
		if config.Password, _ = u.User.Password(); config.Username == "" || config.Password == "" {
			return nil, nil, errEtcdUser
		}
		rest = rest[at+1:]
	}
	for host := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), ",") {
		u, err := url.Parse(etcdScheme + host)
		if err != nil || u.Host != host || u.Hostname() == "" {
			return nil, nil, errEtcdHost
		}
		port := u.Port()
		if port == "" {
			port = etcdPort
		}
		config.Endpoints = append(config.Endpoints, net.JoinHostPort(u.Hostname(), port))
	}
	return config, opts, nil
}
