package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := New(posthorntest.Open(t), Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, nil) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + listener.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cancel()
	if err := await.Value(t, "the end of Serve", ended); err != nil {
		t.Error(err)
	}
	if !s.isDraining() {
		t.Error("it was not drained")
	}
}

// A client that sends its header too slowly is disconnected.
func TestSlowHeadersAreDisconnected(t *testing.T) {
	t.Parallel()
	s := New(posthorntest.Open(t), Options{})
	s.headerTimeout = 50 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, nil) }()
	defer func() { cancel(); <-ended }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Limit))
	go func() {
		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nX-Slow: ")
		for err == nil {
			_, err = io.WriteString(conn, "a")
			await.Pause()
		}
	}()
	_, err = bufio.NewReader(conn).ReadByte()
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		t.Error("the connection was kept")
	}
}
