package pg

import (
	"testing"
	"time"
)

// A connection is under suspicion only if a statement waits for an answer, and has had time to
// arrive.
func TestSuspects(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *watchedConn){
		"it received something": func(c *watchedConn) { c.active = time.Now() },
		"it has no statement":   func(c *watchedConn) { c.statements.Store(0) },
		"it does not wait":      func(c *watchedConn) { c.reading = 0 },
		"it still sends":        func(c *watchedConn) { c.writing = 1 },
		"it has sent much":      func(c *watchedConn) { c.uploaded = 100 << 20 },
	} {
		c := &watchedConn{active: time.Now().Add(-2 * probeAfter), reading: 1}
		c.statements.Store(1)
		if !c.isSuspect() {
			t.Error("a statement that waits is not suspect")
		}
		if change(c); c.isSuspect() {
			t.Errorf("a connection is suspect although %s", name)
		}
	}
}
