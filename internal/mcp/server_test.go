package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/mcp"
)

// client writes messages to a server, and reads its answers.
type client struct {
	*testing.T
	in  io.WriteCloser
	out *json.Decoder
}

// serve starts a server, which ends before the test.
func serve(t *testing.T, s mcp.Server) client {
	t.Helper()
	in, write := io.Pipe()
	read, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(t.Context(), in, out)
		out.Close()
	}()
	t.Cleanup(func() {
		write.Close()
		if err := <-ended; err != nil {
			t.Errorf("the session ended with %v", err)
		}
	})
	return client{t, write, json.NewDecoder(read)}
}

func (c client) write(line string) {
	c.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.Fatal(err)
	}
}

type answer struct {
	ID    json.RawMessage
	Error struct {
		Code    int
		Message string
	}
	Result struct {
		Content []struct{ Text string }
		IsError bool
	}
}

func (c client) read() (a answer) {
	c.Helper()
	if err := c.out.Decode(&a); err != nil {
		c.Fatal(err)
	}
	return a
}

// A message that cannot be answered as a request gets an error, under its id if that can be told, and the session goes on.
func TestMessagesThatAreNoRequests(t *testing.T) {
	t.Parallel()
	c := serve(t, mcp.Server{})
	large := strings.Repeat("x", 4<<20)
	for i, message := range []struct {
		line, id, says string
		code           int
	}{
		{"so much for JSON", "null", "no JSON object", -32700},
		{`[1, 2]`, "null", "no JSON object", -32700},
		{`{"jsonrpc": "2.0"}`, "null", "no request", -32600},
		{`{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "` + large + `"}}`, "7", "larger than 4 MiB", -32600},
		{`{"method": "tools/call", "params": {"id": 8, "name": "` + large + `"}, "jsonrpc": "2.0", "id": "b"}`, `"b"`, "larger than 4 MiB", -32600},
		{`{"method": "tools/call", "params": {"name": "` + large + `", "id": 9}}`, "null", "larger than 4 MiB", -32600},
		{`{"method": "` + strings.Repeat("m", 1002) + `", "id": 12345, "params": "` + large + `"}`, "null", "larger than 4 MiB", -32600}, // 12 is at the edge
		{large, "null", "larger than 4 MiB", -32600},
		{strings.Repeat(" ", 5<<20), "null", "larger than 4 MiB", -32600},
		{strings.Repeat(" ", 5<<20) + `{"jsonrpc": "2.0", "method": "ping", "id": 10}  `, "10", "larger than 4 MiB", -32600},
	} {
		c.write(message.line)
		a := c.read()
		if string(a.ID) != message.id || a.Error.Code != message.code || !strings.Contains(a.Error.Message, message.says) {
			t.Errorf("the answer to %.60s…: %s %d %.100s", message.line, a.ID, a.Error.Code, a.Error.Message)
		}
		c.write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "method": "ping"}`, 100+i))
		if a := c.read(); string(a.ID) != fmt.Sprint(100+i) || a.Error.Code != 0 {
			t.Errorf("the ping after it: %s %+v", a.ID, a.Error)
		}
	}
}

// A call that gets no answer ends after a minute, with an error that says so, and frees its place. Meanwhile the server answers
// other requests.
func TestCallsEndByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, mcp.Server{With: func(ctx context.Context, _ string, _ func(*admin.Admin) error) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		began := time.Now()
		const calls = 9
		for id := range calls {
			c.write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "list-groups"}}`, id))
		}
		synctest.Wait()
		for _, method := range []string{"ping", "initialize", "tools/list"} {
			c.write(`{"jsonrpc": "2.0", "id": "` + method + `", "method": "` + method + `"}`)
			if a := c.read(); string(a.ID) != `"`+method+`"` || a.Error.Code != 0 || time.Since(began) > 0 {
				t.Errorf("%s while calls hang: %s %+v after %s", method, a.ID, a.Error, time.Since(began))
			}
		}
		for range calls {
			a := c.read()
			if !a.Result.IsError || len(a.Result.Content) != 1 || !strings.Contains(a.Result.Content[0].Text, "no answer within 60 seconds") {
				t.Errorf("call %s: %+v", a.ID, a)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the calls ended after %s", took)
		}
	})
}

// A call that gets no turn within its minute has not met the database: its error says that others were under way.
func TestCallWithoutATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := serve(t, mcp.Server{With: func(ctx context.Context, _ string, _ func(*admin.Admin) error) error {
			<-release
			return ctx.Err()
		}})
		want := func(calls int, says string) {
			t.Helper()
			for range calls {
				if a := c.read(); !a.Result.IsError || len(a.Result.Content) != 1 || !strings.Contains(a.Result.Content[0].Text, says) {
					t.Errorf("call %s: %+v, want %q", a.ID, a, says)
				}
			}
		}
		for id := range 9 {
			c.write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "list-groups"}}`, id))
			synctest.Wait()
		}
		want(1, "has not begun: 8 other calls were under way")
		synctest.Wait() // for the ends of the other calls' minutes, which are the same
		close(release)
		want(8, "The database hangs, or is very slow")
	})
}

// Eight calls run at once and others wait. Meanwhile the server reads, so each of them can be cancelled.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, begun := make(chan struct{}, 100), 0
		begin := make(chan struct{}, 100)
		c := serve(t, mcp.Server{With: func(ctx context.Context, _ string, _ func(*admin.Admin) error) error {
			begin <- struct{}{}
			running <- struct{}{}
			<-ctx.Done()
			<-running
			return ctx.Err()
		}})
		call := func(id int) {
			c.write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "list-groups"}}`, id))
		}
		cancel := func(id int) {
			c.write(fmt.Sprintf(`{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": %d}}`, id))
		}
		want := func(when string, runs, begins int) {
			t.Helper()
			synctest.Wait()
			for len(begin) > 0 {
				<-begin
				begun++
			}
			if len(running) != runs || begun != begins {
				t.Errorf("%s: %d calls run, and %d have begun; want %d and %d", when, len(running), begun, runs, begins)
			}
		}
		for id := range 8 {
			call(id)
		}
		want("with eight calls", 8, 8)
		call(8)
		call(9)
		want("with ten", 8, 8)
		cancel(8)
		want("when one that waits is cancelled", 8, 8)
		cancel(0)
		want("when one that runs is cancelled", 8, 9)
		for id := range 10 {
			cancel(id)
		}
		want("when all are cancelled", 0, 9)
	})
}
