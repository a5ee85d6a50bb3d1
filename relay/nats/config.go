package nats

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn"
)

// Config is what a sink may be told besides its URL. What the URL says too, in
// parameters, it says instead.
type Config struct {
	// Prefix begins the names and subjects of the streams: two logs that write to
	// one JetStream have different ones. 1 to 32 letters, digits, - and _; none is
	// posthorn. In the URL: prefix=shop
	Prefix string
	// Replicas is how many servers keep a stream. A stream that has fewer gets
	// more, one that has more keeps them; none is 1. In the URL: replicas=3
	Replicas int
	// MaxBytes bounds a stream. One that is full takes no more, until something is
	// trimmed: nothing that somebody still needs goes. None is no bound. In the
	// URL: max_bytes=10000000000
	MaxBytes int64
	// MaxAge is when the server deletes a message, whoever still needs it. None is
	// never; [Sink.Trim] is the careful way. In the URL: max_age=720h
	MaxAge time.Duration
	// KeepFor and Keep are what [Sink.Trim] leaves: all messages that are younger,
	// and that many of the newest. With neither it removes nothing. In the URL:
	// keep_for=168h, keep=1000000
	KeepFor time.Duration
	Keep    int64
	// MaxPending is how many messages may be on their way at a time; none is
	// 4,000.
	MaxPending int
	// Timeout is how long to wait for an answer of a server; none is 5 seconds.
	Timeout time.Duration
	// Logger gets what happens to the connection; none is slog's default.
	Logger *slog.Logger
	// Connection has further options of the connection, such as TLS of its own.
	Connection []natsgo.Option
}

const (
	defaultPrefix     = "posthorn"
	defaultMaxPending = 4000
	defaultTimeout    = 5 * time.Second
	defaultPort       = "4222"
)

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, invalid("the URL of NATS cannot be parsed", "Write it like nats://host:4222?replicas=3.")
	}
	return u, nil
}

// fromURL is the config with what the URL says, the servers' addresses, and the
// options of the connection that the URL has.
func (c Config) fromURL(u *url.URL) (Config, string, error) {
	if u.Scheme != "nats" && u.Scheme != "tls" || u.Host == "" {
		return c, "", invalid("a URL of NATS begins with nats:// or tls:// and a host", "Write it like nats://host:4222?replicas=3.")
	}
	if strings.Trim(u.Path, "/") != "" {
		return c, "", invalid("a URL of NATS has no path", "Use ?prefix=… to keep the streams of two logs apart.")
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
			return c, "", invalid("a URL of NATS has no parameter "+strconv.Quote(name),
				"There are addr, prefix, replicas, keep_for, keep, max_bytes, max_age, creds and ca.")
		}
		if err != nil {
			return c, "", invalid("the parameter "+name+" of the URL cannot be "+strconv.Quote(value), "Write it like replicas=3, max_bytes=1000000000 or keep_for=168h.")
		}
	}
	for i, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			hosts[i] = net.JoinHostPort(strings.Trim(host, "[]"), cmp.Or(u.Port(), defaultPort))
		}
		hosts[i] = (&url.URL{Scheme: u.Scheme, User: u.User, Host: hosts[i]}).String()
	}
	c, err := c.complete()
	return c, strings.Join(hosts, ","), err
}

// complete checks the config, and fills in what it leaves open.
func (c Config) complete() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxPending = cmp.Or(c.MaxPending, defaultMaxPending)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	switch {
	case !validPrefix.MatchString(c.Prefix):
		return c, invalid("the prefix "+strconv.Quote(c.Prefix)+" is none", "A prefix is 1 to 32 letters, digits, - and _.")
	case c.Replicas < 1 || c.Replicas > 5:
		return c, invalid(fmt.Sprintf("a stream cannot have %d replicas", c.Replicas), "JetStream keeps 1 to 5; 3 survive the loss of one server.")
	case c.MaxBytes < 0 || c.MaxAge < 0 || c.KeepFor < 0 || c.Keep < 0 || c.MaxPending < 0 || c.Timeout < 0:
		return c, invalid("a bound or a time is negative", "Leave it out, or use a positive one.")
	}
	return c, nil
}

// connect connects, or says why not before ctx and the timeout end. The error
// does not repeat the URL, which may have a password.
func (c Config) connect(ctx context.Context, servers string, further ...natsgo.Option) (*natsgo.Conn, error) {
	options := append([]natsgo.Option{
		natsgo.Name("posthorn"),
		natsgo.Timeout(c.Timeout),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100 * time.Millisecond),
		natsgo.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		// What cannot be sent now fails now; whoever wants it sent comes again.
		natsgo.ReconnectBufSize(-1),
		// A server that hangs is left for another one.
		natsgo.PingInterval(c.Timeout),
		natsgo.MaxPingsOutstanding(2),
		natsgo.FlusherTimeout(c.Timeout),
		natsgo.ReconnectOnFlusherError(),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			c.Logger.Warn("nats", "error", err)
		}),
		natsgo.ReconnectHandler(func(conn *natsgo.Conn) {
			c.Logger.Info("nats: connected again", "server", conn.ConnectedServerName())
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

// hinted is an error that callers can tell apart, and that says what to do.
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
