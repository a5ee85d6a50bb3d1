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

// schemes are the supported URL schemes. Those with rediss connect by TLS.
var schemes = []string{
	"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster",
}

type kind int

const (
	single kind = iota
	sentinel
	cluster
)

// target has the settings of a URL, and those of the Config that the URL leaves out.
type target struct {
	address                            string // the URL without credentials, for messages
	kind                               kind
	addrs                              []string
	master                             string // the name of the master in Sentinel
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

// parseURL parses a URL. Settings that the URL does not have come from config. The
// errors do not contain the URL, which may have a password.
func parseURL(text string, config Config) (target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return target{}, errors.New("the URL cannot be parsed; write it like redis://user:password@host:6379")
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
		return target{}, fmt.Errorf("the scheme %q is not supported; the schemes are %s", u.Scheme, strings.Join(schemes, ", "))
	}
	if path != "" {
		var err error
		if t.db, err = strconv.Atoi(path); err != nil || t.db < 0 {
			return target{}, errors.New("the path of the URL is not the number of a database")
		}
	}
	if t.kind == cluster && t.db != 0 {
		return target{}, errors.New("a Cluster has database 0 only")
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
		return errors.New("redis:// takes one host; redis-sentinel:// and redis-cluster:// take several")
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
				err = errors.New("negative")
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
			return fmt.Errorf("the URL has an unknown parameter %q; the parameters are prefix, replicas, keep, keep_for, timeout, sentinel_username, sentinel_password", name)
		}
		if err != nil {
			return fmt.Errorf("the URL parameter %s has an invalid value: %q", name, value)
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

// client returns a client that never retries a command: the caller decides which
// commands are safe to repeat.
func (t *target) client() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: t.addrs, IsClusterMode: t.kind == cluster, MasterName: t.master, DB: t.db,
		Username: t.username, Password: t.password,
		SentinelUsername: t.sentinelUsername, SentinelPassword: t.sentinelPassword,
		TLSConfig: t.tls, Protocol: 2, ClientName: clientName, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: t.timeout / 2, ReadTimeout: t.timeout, WriteTimeout: t.timeout,
		MaintNotificationsConfig: noMaintNotifications(),
	})
}

const clientName = "posthorn"

// noMaintNotifications disables maintenance notifications, a command that only the
// servers of one vendor know.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
