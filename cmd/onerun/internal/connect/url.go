package connect

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Split splits a list of URLs at its commas. It drops the space around each, which a file or a
// secret may end with. The URL of a Sentinel has commas itself, so a part
// that has no scheme belongs to the URL before it.
func Split(list string) (urls []string) {
	for part := range strings.SplitSeq(list, ",") {
		switch part = strings.TrimSpace(part); {
		case part == "":
		case !strings.Contains(part, "://") && len(urls) > 0:
			urls[len(urls)-1] += "," + part
		default:
			urls = append(urls, part)
		}
	}
	return urls
}

// isLocal reports whether a host is a loopback address.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// errURL stands for each error of a parser: the errors of net/url and of go-redis quote what they
// do not understand, and that may be a password.
var errURL = errors.New("it is no URL of a Redis (in a user or password, escape special characters: / is %2F)")

// errNoURL is the error of what has no scheme, and may have a password.
var errNoURL = errors.New("it is no URL of a store, such as redis://, postgres://, mysql://, etcd:// or sqlite:FILE, " +
	"which is the only one without // (in a user or password, escape special characters: / is %2F)")

// A schemeError is a URL whose scheme is none of ours.
type schemeError struct{ scheme string }

func (e *schemeError) Error() string {
	return fmt.Sprintf("its scheme %q is not redis, rediss, unix, redis+cluster, rediss+cluster, "+
		"redis+sentinel, rediss+sentinel, postgres, postgresql, mysql, mariadb, etcd or sqlite (as in sqlite:FILE)", e.scheme)
}

// kind is what stands behind a URL.
type kind int

const (
	server kind = iota
	cluster
	sentinel
)

// kindOf returns the kind of a URL, and the URL with a scheme that go-redis knows.
func kindOf(address string) (kind, string, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return 0, "", errNoURL
	}
	scheme, what, _ := strings.Cut(scheme, "+")
	known := scheme == "redis" || scheme == "rediss"
	switch {
	case what == "" && (known || scheme == "unix"):
		return server, address, nil
	case what == "cluster" && known:
		return cluster, scheme + "://" + rest, nil
	case what == "sentinel" && known:
		return sentinel, scheme + "://" + rest, nil
	case strings.Trim(strings.ToLower(scheme+what), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return 0, "", errURL // it may be a password
	}
	if what != "" {
		scheme += "+" + what
	}
	return 0, "", &schemeError{scheme}
}

// parseServer returns the options of one server.
func parseServer(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errURL
	}
	return o, nil
}

// parseSentinel returns the options of redis://user:password@host:port,host:port/master/db. The
// user is that of the Redis servers. A user of the Sentinels is in the query.
func parseSentinel(address string) (*redis.FailoverOptions, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	rest, query, _ := strings.Cut(rest, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, errURL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, err := url.Parse(scheme + "://" + rest[:at] + "@host")
		if err != nil {
			return nil, errURL
		}
		password, _ := user.User.Password()
		q.Set("username", user.User.Username())
		q.Set("password", password)
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	master, db, _ := strings.Cut(path, "/")
	if master == "" {
		return nil, errors.New("it names no master, as in redis+sentinel://host:26379,host:26379/mymaster/0")
	}
	q.Set("master_name", master)
	all := strings.Split(hosts, ",")
	for _, host := range all[1:] {
		q.Add("addr", host)
	}
	user, password := q.Get("sentinel_username"), q.Get("sentinel_password")
	q.Del("sentinel_username")
	q.Del("sentinel_password")
	o, err := redis.ParseFailoverURL(scheme + "://" + all[0] + "/" + db + "?" + q.Encode())
	if err != nil {
		return nil, errURL
	}
	o.SentinelUsername, o.SentinelPassword = user, password
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // that of the server to which it connects
	}
	return o, nil
}

// parseCluster returns the options of a Cluster whose first nodes are those of the URLs. All but
// the addresses comes from the first.
func parseCluster(addresses []string) (*redis.ClusterOptions, error) {
	var all *redis.ClusterOptions
	for _, address := range addresses {
		o, err := redis.ParseClusterURL(address)
		switch {
		case err != nil:
			return nil, errURL
		case all == nil:
			all = o
		default:
			all.Addrs = append(all.Addrs, o.Addrs...)
		}
	}
	return all, nil
}
