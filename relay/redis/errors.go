package redis

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// failure is an error with a hint for the operator.
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
	{"WRONGTYPE", "The key of the stream has a value of another type. Rename that key, or use a prefix for the relay: redis://host?prefix=events:"},
	{"OOM", "Redis is full (maxmemory). Raise maxmemory or trim streams. The relay continues when there is room."},
	{"READONLY", "The server is a replica. Use the URL of the master, or redis-sentinel://, which follows failovers."},
	{"NOREPLICAS", "Too few replicas are connected to the master (min-replicas-to-write)."},
	{"NOAUTH", "The server requires a password, and the URL has none: redis://user:password@host"},
	{"WRONGPASS", "The user or the password in the URL is wrong."},
	{"NOPERM", "The user lacks permissions (ACL SETUSER). The documentation of package relay/redis lists the required commands."},
	{"CLUSTERDOWN", "The Cluster has no master for some slots. It recovers when a replica takes over, or the master is back."},
	{"LOADING", "The server is loading its data from disk after a start."},
	{"MISCONF", "The server cannot write to its disk."},
	{"BUSY", "The server is busy with a script of another program."},
}

// explain adds a hint to an error of Redis.
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

// errorCode returns the first word of an error reply, or "" for other errors. Before
// Redis 7, an error inside a script is wrapped in another error reply.
func errorCode(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	if strings.HasPrefix(text, "ERR Error running script") {
		if _, cause, ok := strings.Cut(text, ": -"); ok {
			text = cause
		}
	}
	code, _, _ := strings.Cut(text, " ")
	return code
}
