// Package send makes one request of a webhook and returns the answer of its endpoint. It signs requests as Standard Webhooks
// says, connects to public addresses only, and bounds everything that an endpoint can do to it.
//
// It knows no database. Package webhook chooses the events and the times, and judges answers.
package send

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	connectTimeout  = 10 * time.Second
	idleTimeout     = 30 * time.Second
	idleConnections = 512
	idlePerHost     = 32
	largestHeaders  = 32 << 10 // of an answer
)

// Config has the settings of a process for all its webhooks. The zero value allows public addresses only.
type Config struct {
	// Allow has private addresses that webhooks may reach all the same.
	Allow []netip.Prefix
}

// Client sends requests. It may be used by several goroutines, and a process needs one.
type Client struct {
	dialer    *net.Dialer
	transport *http.Transport
}

// New makes a client. It uses no proxy: a proxy would resolve names itself, and so connect to addresses that were never
// checked.
//
// It speaks HTTP/1.1 only. With HTTP/2 all endpoints of a host would share a connection, and its flow control would let one
// that hangs hold up the others.
func New(config Config) *Client {
	dialer := &net.Dialer{Timeout: connectTimeout, ControlContext: newGuard(config.Allow).control}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Client{dialer, &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		Protocols:              protocols,
		DisableCompression:     true, // an answer never unpacks to more than was sent
		MaxResponseHeaderBytes: largestHeaders,
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Send makes one POST request within ctx, whose deadline is that of the whole request. It returns an error only if no answer
// came, with a text that may be shown: it has no secret, no header and nothing of the URL but its host. The answer has the
// RequestID in any case.
//
// Redirects are answers like others: the transport does not follow them.
func (c *Client) Send(ctx context.Context, r Request) (Answer, error) {
	answer := Answer{RequestID: r.id()}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := r.build(ctx)
	if err != nil {
		return answer, err
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return answer, failure(request.URL.Hostname(), connected.Load(), err)
	}
	if response.StatusCode < 100 {
		_ = response.Body.Close()
		return answer, errors.New("the status of the answer is none of HTTP")
	}
	answer.read(response, r.At)
	return answer, nil
}
