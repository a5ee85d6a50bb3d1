package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn"
)

// Config configures a [Sink] or a [Source]. The zero value has sound defaults.
// Parameters of the URL take precedence.
type Config struct {
	// Prefix is the first part of the names and subjects of the streams. Two logs that
	// write to the same JetStream need different prefixes. A prefix is 1 to 32 letters,
	// digits, - and _. Defaults to posthorn. In the URL: prefix=shop
	Prefix string
	// Replicas is the number of servers that store a stream. An existing stream with
	// fewer replicas gets more; one with more replicas keeps them. Defaults to 1. In
	// the URL: replicas=3
	Replicas int
	// MaxBytes limits the size of a stream. A full stream refuses new messages until it
	// is trimmed; JetStream does not drop old messages to make room. Defaults to no
	// limit. In the URL: max_bytes=10000000000
	MaxBytes int64
	// MaxAge is the age at which the server deletes a message, even if a consumer still
	// needs it. [Sink.Trim] removes only messages that are not needed. Defaults to no
	// limit. In the URL: max_age=720h
	MaxAge time.Duration
	// KeepFor and Keep limit what [Sink.Trim] removes: it keeps all messages that are
	// younger than KeepFor, and the newest Keep messages. If both are zero, nothing is
	// trimmed. In the URL: keep_for=168h, keep=1000000
	KeepFor time.Duration
	Keep    int64
	// MaxPending is the maximum number of messages in flight. Defaults to 4,000.
	MaxPending int
	// Timeout limits the time to wait for a reply of a server. Defaults to 5 seconds.
	Timeout time.Duration
	// Logger receives the errors and reconnects of the connection. Defaults to
	// slog.Default().
	Logger *slog.Logger
	// Connection has additional options for the connection, such as TLS.
	Connection []natsgo.Option
}

const (
	defaultPrefix     = "posthorn"
	defaultMaxPending = 4000
	defaultTimeout    = 5 * time.Second
	defaultPort       = "4222"
)

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// endpoint is where the servers of a URL are.
type endpoint struct {
	servers string // the URLs of all servers, without credentials
	address string // the URL without credentials and parameters, for messages
}

// withURL returns the config with the parameters of a URL, and the servers of the URL.
func (c Config) withURL(text string) (Config, endpoint, error) {
	u, err := url.Parse(text)
	if err != nil {
		return c, endpoint{}, invalid("the URL of NATS cannot be parsed", "Write it like nats://host:4222?replicas=3.")
	}
	if u.Scheme != "nats" && u.Scheme != "tls" || u.Host == "" {
		return c, endpoint{}, invalid("a URL of NATS begins with nats:// or tls:// and a host", "Write it like nats://host:4222?replicas=3.")
	}
	// A ? or # in a password would end the host, and later errors would show the rest of it.
	if u.User == nil && strings.Contains(u.RawQuery+u.Fragment, "@") {
		return c, endpoint{}, invalid("the URL of NATS has an @ behind a ? or #", "Write them in a password as %3F and %23, and @ in a parameter as %40.")
	}
	if strings.Trim(u.Path, "/") != "" {
		return c, endpoint{}, invalid("a URL of NATS has no path", "To separate the streams of two logs, use ?prefix=….")
	}
	hosts := strings.Split(u.Host, ",")
	for name, values := range u.Query() {
		value, err := values[len(values)-1], error(nil)
		switch name {
		case "addr":
			hosts = append(hosts, values...)
		case "prefix":
			c.Prefix = value
		case "replicas":
			c.Replicas, err = strconv.Atoi(value)
		case "max_bytes":
			c.MaxBytes, err = strconv.ParseInt(value, 10, 64)
		case "max_age":
			c.MaxAge, err = time.ParseDuration(value)
		case "keep_for":
			c.KeepFor, err = time.ParseDuration(value)
		case "keep":
			c.Keep, err = strconv.ParseInt(value, 10, 64)
		case "creds":
			c.Connection = append(c.Connection, natsgo.UserCredentials(value))
		case "ca":
			c.Connection = append(c.Connection, natsgo.RootCAs(value))
		default:
			return c, endpoint{}, invalid("a URL of NATS has no parameter "+strconv.Quote(name),
				"The parameters are addr, prefix, replicas, keep_for, keep, max_bytes, max_age, creds and ca.")
		}
		if err != nil {
			return c, endpoint{}, invalid("the URL parameter "+name+" has an invalid value: "+strconv.Quote(value), "Write it like replicas=3, max_bytes=1000000000 or keep_for=168h.")
		}
	}
	for i, host := range hosts {
		if hosts[i], err = serverURL(u.Scheme, host, cmp.Or(u.Port(), defaultPort)); err != nil {
			return c, endpoint{}, err
		}
	}
	c.Connection = append(slices.Clip(c.Connection), credentials(u.User)...)
	c, err = c.withDefaults()
	return c, endpoint{strings.Join(hosts, ","), (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()}, err
}

// serverURL returns the URL of a server. It does not have the credentials, which the client of
// NATS would repeat in errors.
func serverURL(scheme, host, port string) (string, error) {
	name, number, err := net.SplitHostPort(host)
	if err != nil {
		name, number = strings.Trim(host, "[]"), port
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil || name == "" || strings.ContainsAny(name, "@,/") {
		return "", invalid("a server in the URL of NATS is not a host, or a host and a port",
			"Write it like nats://host:4222,host2:4222, or ?addr=host2:4222: user and password stand before the first host only.")
	}
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(name, number)}).String(), nil
}

// credentials are those of a URL. A user without a password is a token.
func credentials(user *url.Userinfo) []natsgo.Option {
	password, has := user.Password()
	switch {
	case has:
		return []natsgo.Option{natsgo.UserInfo(user.Username(), password)}
	case user.Username() != "":
		return []natsgo.Option{natsgo.Token(user.Username())}
	}
	return nil
}

// withDefaults sets the defaults of unset fields, and validates all fields.
func (c Config) withDefaults() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxPending = cmp.Or(c.MaxPending, defaultMaxPending)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	switch {
	case !validPrefix.MatchString(c.Prefix):
		return c, invalid("the prefix "+strconv.Quote(c.Prefix)+" is invalid", "A prefix is 1 to 32 letters, digits, - and _.")
	case c.Replicas < 1 || c.Replicas > 5:
		return c, invalid(fmt.Sprintf("a stream cannot have %d replicas", c.Replicas), "JetStream supports 1 to 5 replicas. With 3, a stream survives the loss of one server.")
	case c.MaxBytes < 0 || c.MaxAge < 0 || c.KeepFor < 0 || c.Keep < 0 || c.MaxPending < 0 || c.Timeout < 0:
		return c, invalid("a limit or a duration is negative", "Leave it out, or use a positive value.")
	}
	return c, nil
}

// connect connects to the servers. It returns when ctx or the timeout ends. The error
// does not contain the URL, which may have a password.
func (c Config) connect(ctx context.Context, servers string, further ...natsgo.Option) (*natsgo.Conn, error) {
	options := append([]natsgo.Option{
		natsgo.Name("posthorn"),
		natsgo.Timeout(c.Timeout),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100 * time.Millisecond),
		natsgo.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		// A message that cannot be sent fails at once. The relay repeats it.
		natsgo.ReconnectBufSize(-1),
		// The connection leaves a server that hangs, and connects to another one.
		natsgo.PingInterval(c.Timeout),
		natsgo.MaxPingsOutstanding(2),
		natsgo.FlusherTimeout(c.Timeout),
		natsgo.ReconnectOnFlusherError(),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			c.Logger.Warn("nats: error of the connection", "error", err)
		}),
		natsgo.ReconnectHandler(func(conn *natsgo.Conn) {
			c.Logger.Info("nats: reconnected", "server", conn.ConnectedServerName())
		}),
	}, further...)
	options = append(options, c.Connection...)
	type connection struct {
		conn *natsgo.Conn
		err  error
	}
	made := make(chan connection, 1)
	go func() {
		conn, err := natsgo.Connect(servers, options...)
		made <- connection{conn, err}
	}()
	select {
	case m := <-made:
		if failed, ok := errors.AsType[*url.Error](m.err); ok {
			m.err = failed.Err // without the URL
		}
		if m.err != nil {
			return nil, fmt.Errorf("connect to nats: %w", m.err)
		}
		return m.conn, nil
	case <-ctx.Done():
		go func() {
			if m := <-made; m.err == nil {
				m.conn.Close()
			}
		}()
		return nil, fmt.Errorf("connect to nats: %w", ctx.Err())
	}
}

// hinted is an error with a hint for the operator. It wraps its kind, a sentinel such
// as [posthorn.ErrInvalid].
type hinted struct {
	kind error
	text string
	hint string
}

func (e *hinted) Error() string { return e.text }
func (e *hinted) Hint() string  { return e.hint }
func (e *hinted) Unwrap() error { return e.kind }

func invalid(text, hint string) error { return &hinted{posthorn.ErrInvalid, text, hint} }
func refused(text, hint string) error { return &hinted{posthorn.ErrRefused, text, hint} }
