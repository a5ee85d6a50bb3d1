package relay

import (
	"sync"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// status is the error that the database has of a relay, for those who look at it.
type status struct {
	mu    sync.Mutex
	error string
	known bool // false: the database may have one of an earlier term
}

// noteFailure tells the database the error that keeps the relay from writing.
func (t *term) noteFailure(cause error) { t.noteError(worker.Clip(cause.Error())) }

// noteSuccess tells the database that the relay writes again, when no stream is
// stuck any more.
func (t *term) noteSuccess() {
	t.mu.Lock()
	stuck := len(t.stuck) > 0
	t.mu.Unlock()
	if !stuck {
		t.noteError("")
	}
}

func (t *term) noteError(text string) {
	t.status.mu.Lock()
	defer t.status.mu.Unlock()
	if t.status.known && t.status.error == text {
		return
	}
	if err := pg.NoteRelayError(t.ctx, t.Pool, t.lead, text); err != nil {
		if t.ctx.Err() == nil {
			t.Log.Warn("the status of the relay could not be noted", "relay", t.Group.Name, "error", err)
		}
		return
	}
	t.status.error, t.status.known = text, true
}
