package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The schemes that [Open] and sources know; with an s at the end of redis, by TLS.
var schemes = []string{
	"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster",
}

type kind int

const (
	single kind = iota
	sentinel
	cluster
)

// target is what a URL says.
type target struct {
	address                            string // for people, without secrets
	kind                               kind
	addrs                              []string
	master                             string // as Sentinel knows it
	username, password                 string
	sentinelUsername, sentinelPassword string
	db                                 int
	tls                                *tls.Config
	prefix                             string
	keep                               int
	keepFor                            time.Duration
	replicas                           int
	timeout                            time.Duration
}

// parseURL reads a URL, and what it does not say from config. Its errors do not
// repeat the URL, which may have a password.
func parseURL(text string, config Config) (target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return target{}, errors.New("the URL cannot be parsed; it is like redis://user:password@host:6379")
	}
	t := target{
		address: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), username: u.User.Username(),
		prefix: config.Prefix, replicas: config.Replicas, keep: config.Keep, keepFor: config.KeepFor, timeout: config.Timeout,
	}
	t.password, _ = u.User.Password()
	port := "6379"
	scheme, secure := strings.CutPrefix(u.Scheme, "rediss")
	if !secure {
		scheme = strings.TrimPrefix(u.Scheme, "redis")
	}
	path := strings.Trim(u.Path, "/")
	switch scheme {
	case "":
	case "-sentinel":
		t.kind, port = sentinel, "26379"
		t.master, path, _ = strings.Cut(path, "/")
		if t.master == "" {
			return target{}, errors.New("the URL does not name the master: redis-sentinel://host1,host2/mymaster")
		}
	case "-cluster":
		t.kind = cluster
	default:
		return target{}, fmt.Errorf("scheme %q is not known; there are %s", u.Scheme, strings.Join(schemes, ", "))
	}
	if path != "" {
		var err error
		if t.db, err = strconv.Atoi(path); err != nil || t.db < 0 {
			return target{}, errors.New("what follows the host in the URL is the number of a database")
		}
	}
	if t.kind == cluster && t.db != 0 {
		return target{}, errors.New("a Cluster has no databases but 0")
	}
	if err := t.hosts(u.Host, port); err != nil {
		return target{}, err
	}
	if secure {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		if config.TLS != nil {
			t.tls = config.TLS.Clone()
		}
	}
	if err := t.parameters(u); err != nil {
		return target{}, err
	}
	if t.timeout <= 0 {
		t.timeout = 10 * time.Second
	}
	return t, nil
}

func (t *target) hosts(list, port string) error {
	for host := range strings.SplitSeq(list, ",") {
		addr := host
		if _, _, err := net.SplitHostPort(host); err != nil {
			addr = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if strings.HasPrefix(addr, ":") {
			return errors.New("the URL has no host")
		}
		t.addrs = append(t.addrs, addr)
	}
	if t.kind == single && len(t.addrs) > 1 {
		return errors.New("redis:// has one host; for several there are redis-sentinel:// and redis-cluster://")
	}
	return nil
}

func (t *target) parameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the parameters of the URL cannot be parsed")
	}
	for name, values := range query {
		value, err := values[len(values)-1], error(nil)
		switch name {
		case "prefix":
			t.prefix = value
		case "replicas":
			t.replicas, err = strconv.Atoi(value)
			if err == nil && t.replicas < 0 {
				err = errors.New("less than 0")
			}
			if t.replicas == 0 {
				t.replicas = NoReplicas
			}
		case "keep":
			t.keep, err = strconv.Atoi(value)
			if err == nil && t.keep <= 0 {
				err = errors.New("not more than 0")
			}
		case "keep_for":
			t.keepFor, err = duration(value)
		case "timeout":
			t.timeout, err = duration(value)
		case "sentinel_username":
			t.sentinelUsername = value
		case "sentinel_password":
			t.sentinelPassword = value
		default:
			return fmt.Errorf("the URL has an unknown parameter %q; there are prefix, replicas, keep, keep_for, timeout, sentinel_username, sentinel_password", name)
		}
		if err != nil {
			return fmt.Errorf("the URL's parameter %s: %q is no such value", name, value)
		}
	}
	return nil
}

func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("not more than 0")
	}
	return d, err
}

// client has no retries of its own: what is sent again is for the caller to say.
func (t *target) client() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: t.addrs, IsClusterMode: t.kind == cluster, MasterName: t.master, DB: t.db,
		Username: t.username, Password: t.password,
		SentinelUsername: t.sentinelUsername, SentinelPassword: t.sentinelPassword,
		TLSConfig: t.tls, Protocol: 2, ClientName: clientName, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: t.timeout / 2, ReadTimeout: t.timeout, WriteTimeout: t.timeout,
		MaintNotificationsConfig: quiet(),
	})
}

const clientName = "posthorn"

// quiet asks for no notices that only one vendor's servers send.
func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
