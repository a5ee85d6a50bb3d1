package relay

import (
	"sync"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// status is the error that the database has for the relay; status views show it.
type status struct {
	mu    sync.Mutex
	error string
	known bool // false: the database may have an error of an earlier leadership
}

// noteFailure records the error that keeps the relay from writing.
func (l *leadership) noteFailure(cause error) { l.noteError(worker.Clip(cause.Error())) }

// noteSuccess records that the relay writes without an error, unless a stream is still
// stuck.
func (l *leadership) noteSuccess() {
	l.mu.Lock()
	stuck := len(l.stuck) > 0
	l.mu.Unlock()
	if !stuck {
		l.noteError("")
	}
}

func (l *leadership) noteError(text string) {
	l.status.mu.Lock()
	defer l.status.mu.Unlock()
	if l.status.known && l.status.error == text {
		return
	}
	if err := pg.NoteRelayError(l.ctx, l.Pool, l.lead, text); err != nil {
		if l.ctx.Err() == nil {
			l.Log.Warn("the status of the relay could not be noted", "error", err)
		}
		return
	}
	l.status.error, l.status.known = text, true
}
