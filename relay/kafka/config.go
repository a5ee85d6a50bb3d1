package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/posthorn/posthorn"
)

// Config configures a [Sink] or a [Source]. The zero value has sound defaults. Parameters of
// the URL take precedence. A source uses Prefix, Timeout, TLS and Token only.
type Config struct {
	// Relay is the name of the relay. It is a part of the transactional id. All processes of
	// a relay must have the same name here, and relays of a namespace that write to the same
	// Kafka different ones; else they take the lead from each other. Defaults to relay. In
	// the URL: relay=to-kafka
	Relay string
	// Prefix is the first part of the names of the topics. Two logs that write to the same
	// Kafka need different prefixes. A prefix is 1 to 32 letters, digits, - and _. Defaults
	// to posthorn. In the URL: prefix=shop
	Prefix string
	// TopicsMustExist makes a missing topic an error. Otherwise the sink makes it. In the
	// URL: create=false
	TopicsMustExist bool
	// Replicas is the number of replicas of a topic that the sink makes. Defaults to the
	// setting of the server. In the URL: replicas=3
	Replicas int
	// Partitions is the number of partitions of a topic that the sink makes. Events keep
	// the order of their stream with one partition only, and otherwise that of their key.
	// Defaults to 1. In the URL: partitions=6
	Partitions int
	// Timeout limits how long the sink waits for Kafka while nothing moves on. Defaults to
	// 10 seconds. In the URL: timeout=5s
	Timeout time.Duration
	// TLS is the configuration for kafka+ssl:// URLs. Defaults to the certificate authorities
	// of the system, and TLS 1.2 or newer. In the URL, ca names a file with other
	// authorities; cert and key name files with the certificate of the client.
	TLS *tls.Config
	// Token returns a token for OAUTHBEARER; it is called for each new connection. In the
	// URL, token_file names a file that has the token, which is read as often.
	Token func(context.Context) (string, error)
}

const (
	defaultPrefix  = "posthorn"
	defaultRelay   = "relay"
	defaultTimeout = 10 * time.Second
	defaultPort    = "9092"

	userVariable, passwordVariable = "POSTHORN_KAFKA_USER", "POSTHORN_KAFKA_PASSWORD"

	example = "Write it like kafka://host:9092,host2:9092."
)

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// parameters are the parameters of a URL that are no fields of Config.
type parameters struct {
	encrypted      bool
	mechanism      string
	ca, cert, key  string
	tokenFile      string
	user, password string
}

// withURL returns the config with the parameters of a URL, and the options of the client
// that the URL asks for. Errors do not contain the URL, which may have a password.
func (c Config) withURL(text string) (Config, []kgo.Opt, error) {
	u, query, err := parse(text)
	if err != nil {
		return c, nil, err
	}
	p := parameters{encrypted: u.Scheme == "kafka+ssl", user: os.Getenv(userVariable), password: os.Getenv(passwordVariable)}
	if u.User != nil {
		p.user = u.User.Username()
		p.password, _ = u.User.Password()
	}
	if err := c.setParameters(query, &p); err != nil {
		return c, nil, err
	}
	if err := c.setDefaults(); err != nil {
		return c, nil, err
	}
	hosts, err := seeds(u.Host)
	if err != nil {
		return c, nil, err
	}
	options, err := c.security(p)
	return c, append(options, kgo.SeedBrokers(hosts...), kgo.ClientID("posthorn"), kgo.DisableClientMetrics(),
		kgo.DialTimeout(c.Timeout), kgo.RequestTimeoutOverhead(c.Timeout), kgo.RetryTimeout(c.Timeout)), err
}

func parse(text string) (*url.URL, url.Values, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, invalid("the URL of Kafka cannot be parsed", example)
	}
	if u.Scheme != "kafka" && u.Scheme != "kafka+ssl" || u.Host == "" {
		return nil, nil, invalid("a URL of Kafka begins with kafka:// or kafka+ssl:// and a host", example)
	}
	// A ? or # in a password would end the host, and later errors would show the rest of it.
	if u.User == nil && strings.Contains(u.RawQuery+u.Fragment, "@") {
		return nil, nil, invalid("the URL of Kafka has an @ behind a ? or #", "Write them in a password as %3F and %23, and @ in a parameter as %40.")
	}
	if strings.Trim(u.Path, "/") != "" {
		return nil, nil, invalid("a URL of Kafka has no path", "To separate the topics of two logs, use ?prefix=….")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, invalid("the parameters of the URL of Kafka cannot be parsed", example)
	}
	return u, query, nil
}

// withoutSecrets is the URL of a text that parse accepts, without user and parameters.
func withoutSecrets(text string) string {
	u, _, _ := parse(text)
	return u.Scheme + "://" + u.Host
}

func seeds(list string) (all []string, err error) {
	for host := range strings.SplitSeq(list, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		if strings.HasPrefix(host, ":") {
			return nil, invalid("a host is missing in the URL of Kafka", example)
		}
		all = append(all, host)
	}
	return all, nil
}

// security returns the options for TLS and SASL.
func (c *Config) security(p parameters) (options []kgo.Opt, err error) {
	encryption, err := c.encryption(p)
	if err != nil {
		return nil, err
	}
	if encryption != nil {
		options = append(options, kgo.DialTLSConfig(encryption))
	}
	mechanism, err := c.mechanism(p)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (c *Config) setParameters(query url.Values, p *parameters) error {
	for name, values := range query {
		value, err := values[len(values)-1], error(nil)
		switch name {
		case "relay":
			c.Relay = value
		case "prefix":
			c.Prefix = value
		case "create":
			var create bool
			create, err = strconv.ParseBool(value)
			c.TopicsMustExist = !create
		case "replicas":
			c.Replicas, err = strconv.Atoi(value)
		case "partitions":
			c.Partitions, err = strconv.Atoi(value)
		case "timeout":
			c.Timeout, err = time.ParseDuration(value)
		case "sasl":
			p.mechanism = strings.ToLower(value)
		case "ca":
			p.ca = value
		case "cert":
			p.cert = value
		case "key":
			p.key = value
		case "token_file":
			p.tokenFile = value
		default:
			return invalid("a URL of Kafka has no parameter "+strconv.Quote(name),
				"The parameters are relay, prefix, create, replicas, partitions, timeout, sasl, token_file, ca, cert and key.")
		}
		if err != nil {
			return invalid("the URL parameter "+name+" has an invalid value: "+strconv.Quote(value), "Write it like create=false, replicas=3 or timeout=5s.")
		}
	}
	return nil
}

func (c *Config) setDefaults() error {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Relay = cmp.Or(c.Relay, defaultRelay)
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	switch {
	case !validPrefix.MatchString(c.Prefix):
		return invalid("the prefix "+strconv.Quote(c.Prefix)+" is invalid", "A prefix is 1 to 32 letters, digits, - and _.")
	case c.Replicas < 0 || c.Replicas > 100:
		return invalid("replicas must be from 1 to 100", "Leave it out for the setting of the server.")
	case c.Partitions < 1 || c.Partitions > 10_000:
		return invalid("partitions must be from 1 to 10000", "Leave it out for one, with which events keep the order of their stream.")
	case c.Timeout < time.Millisecond:
		return invalid("the timeout must be a millisecond or more", "Leave it out for 10 seconds.")
	}
	return nil
}

// encryption returns the configuration of TLS, or nil without TLS.
func (c *Config) encryption(p parameters) (*tls.Config, error) {
	if !p.encrypted {
		if p.ca+p.cert+p.key != "" {
			return nil, invalid("ca, cert and key are for TLS", "Begin the URL with kafka+ssl://.")
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS != nil {
		config = c.TLS.Clone()
	}
	if p.ca != "" {
		text, err := os.ReadFile(p.ca)
		if err != nil {
			return nil, invalid("read the certificate authorities: "+err.Error(), "The parameter ca names a file in PEM.")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, invalid("the file "+p.ca+" has no certificate", "The parameter ca names a file in PEM.")
		}
	}
	if p.cert+p.key != "" {
		own, err := tls.LoadX509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, invalid("read the certificate of the client: "+err.Error(), "The parameters cert and key name files in PEM.")
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// mechanism returns how the client authenticates, or nil if it does not.
func (c *Config) mechanism(p parameters) (sasl.Mechanism, error) {
	token := c.Token
	if p.tokenFile != "" {
		token = func(context.Context) (string, error) {
			text, err := os.ReadFile(p.tokenFile)
			return strings.TrimSpace(string(text)), err
		}
	}
	switch name := p.mechanismOf(token != nil); name {
	case "":
		return nil, nil
	case "plain":
		return plain.Auth{User: p.user, Pass: p.password}.AsMechanism(), p.needUser()
	case "scram-sha-256":
		return scram.Auth{User: p.user, Pass: p.password}.AsSha256Mechanism(), p.needUser()
	case "scram-sha-512":
		return scram.Auth{User: p.user, Pass: p.password}.AsSha512Mechanism(), p.needUser()
	case "oauthbearer":
		if token == nil {
			return nil, invalid("OAUTHBEARER needs a token", "Name a file that has it, with token_file=….")
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			text, err := token(ctx)
			if err == nil && text == "" {
				err = errors.New("the token for Kafka is empty")
			}
			return oauth.Auth{Token: text}, err
		}), nil
	default:
		return nil, invalid("the mechanism "+strconv.Quote(name)+" of SASL is unknown", "The mechanisms are plain, scram-sha-256, scram-sha-512 and oauthbearer.")
	}
}

// mechanismOf returns the name of the mechanism. Without ?sasl a user authenticates by
// PLAIN, and a token by OAUTHBEARER.
func (p parameters) mechanismOf(hasToken bool) string {
	switch {
	case p.mechanism != "":
		return p.mechanism
	case p.user != "":
		return "plain"
	case hasToken:
		return "oauthbearer"
	}
	return ""
}

func (p parameters) needUser() error {
	if p.user == "" || p.password == "" {
		return invalid("SASL needs a user and a password", "Write them into the URL, or into "+userVariable+" and "+passwordVariable+".")
	}
	return nil
}

// hinted is an error with a hint for the operator. It wraps its kind, a sentinel such as
// [posthorn.ErrInvalid], or the error of Kafka.
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
