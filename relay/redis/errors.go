package redis

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// failure is an error with what to do about it.
type failure struct {
	text, hint string
	err        error
}

func (f *failure) Error() string {
	if f.text == "" {
		return f.err.Error()
	}
	if f.err == nil {
		return f.text
	}
	return f.text + ": " + f.err.Error()
}

func (f *failure) Hint() string  { return f.hint }
func (f *failure) Unwrap() error { return f.err }

var hints = []struct{ code, hint string }{
	{"WRONGTYPE", "The key of the stream holds something else. Rename that, or give the relay a prefix: redis://host?prefix=events:"},
	{"OOM", "Redis is full (maxmemory). Give it more, or trim streams; until then the relay waits."},
	{"READONLY", "That server is a replica. Use the URL of the master, or redis-sentinel://, which follows it."},
	{"NOREPLICAS", "Too few replicas are connected to the master (min-replicas-to-write)."},
	{"NOAUTH", "The URL has no password, and the server wants one: redis://user:password@host"},
	{"WRONGPASS", "The user or the password in the URL is wrong."},
	{"NOPERM", "The user needs evalsha, script|load, xadd, xrevrange, wait, sadd and info on these keys (ACL SETUSER)."},
	{"CLUSTERDOWN", "The Cluster has no master for some keys. It comes back when a replica takes over, or the master does."},
	{"LOADING", "The server reads its data from disk after a start."},
	{"MISCONF", "The server cannot save to its disk."},
	{"BUSY", "The server is busy with a script of somebody else."},
}

// explain adds what to do to an error of Redis.
func explain(err error) error {
	if known := (*failure)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	code := errorCode(err)
	for _, known := range hints {
		if code == known.code {
			return &failure{hint: known.hint, err: err}
		}
	}
	return err
}

// errorCode is the first word of an error that Redis answered with, or "". Before
// version 7, what went wrong inside of a script is wrapped.
func errorCode(err error) string {
	var answered redis.Error
	if !errors.As(err, &answered) {
		return ""
	}
	text := answered.Error()
	if strings.HasPrefix(text, "ERR Error running script") {
		if _, cause, ok := strings.Cut(text, ": -"); ok {
			text = cause
		}
	}
	code, _, _ := strings.Cut(text, " ")
	return code
}
