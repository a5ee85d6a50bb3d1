package relay

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Reader reads back from a broker what relays of this log and namespace have written.
type Reader interface {
	// Streams lists the streams of the broker, also those that the log has forgotten.
	Streams(ctx context.Context) ([]string, error)
	// ReadBack returns entries of a stream, the last one first, before a position; "" is the
	// end. Entries that are no events of this log have the id 0.
	ReadBack(ctx context.Context, stream, before string, max int) ([]Entry, error)
}

// Entry is an entry of a stream.
type Entry struct {
	Position string
	Event    pg.Event
}

const (
	readBackAtOnce = 100  // entries that are compared at once
	usualWindow    = 2000 // events of a window, unless a process has another setting
)

// findLost compares the ends of the streams of the broker with the log, once after each
// failover, crash and restore of the database, and keeps the events that the log has lost.
// It comes before the first window, so that nothing that was written since stands behind
// them. A broker that is down is waited for; nothing could be written to it either.
func (l *leadership) findLost() error {
	if l.Read == nil {
		return nil
	}
	since, err := pg.OwedLooks(l.ctx, l.Pool, l.lead)
	if err != nil || since == 0 {
		return err
	}
	trouble := worker.Trouble{Log: l.Log, Message: "cannot compare the broker with the log yet"}
	for tries := 1; ; tries++ {
		streams, err := l.Read.Streams(l.ctx)
		if err == nil {
			trouble.Over()
			return l.compare(streams, since)
		}
		trouble.Report(err)
		l.noteFailure(err)
		if !worker.Pause(l.going, l.Backoff.after(tries)) {
			return context.Cause(l.ctx)
		}
	}
}

// compare compares streams. One that cannot be read stops no other. If the database fails for longer,
// the next leader compares them again.
func (l *leadership) compare(streams []string, since int64) error {
	var entries, lost, refused int64
	text := ""
	for _, stream := range streams {
		if !consume.MatchesAny(l.lead.Streams, stream) {
			continue
		}
		found, unread, err := l.compareStream(stream, since)
		entries, lost, refused = entries+found.read, lost+found.lost, refused+found.refused
		if err != nil {
			return err
		}
		if l.going.Err() != nil { // the next leader looks
			return context.Cause(l.going)
		}
		if text == "" && unread != nil {
			text = fmt.Sprintf("stream %s: %v", stream, unread)
		}
	}
	if refused > 0 {
		l.Log.Warn("the broker has entries under ids of the log that could not have been published; they are left out of the lost events", "entries", refused)
	}
	if err := pg.NoteLook(l.ctx, l.Pool, l.lead, entries, worker.Clip(text)); err != nil {
		return err
	}
	switch {
	case text != "":
		l.Log.Error("the database was failed over, restored or has crashed, and some streams of the broker could not be compared with the log",
			"error", text, "lost", lost, "see", "posthorn failovers list")
	case lost > 0:
		l.Log.Error("the database was failed over, restored or has crashed: the broker has events that the log has lost",
			"lost", lost, "see", "posthorn failovers list")
	default:
		l.Log.Info("the database was failed over, restored or has crashed: the broker has no event that the log has lost", "compared", entries)
	}
	return nil
}

// comparison counts the entries of a stream.
type comparison struct {
	read    int64
	lost    int64 // by the log
	refused int64 // they are no events that could have been published
}

// compareStream reads a stream back until as many entries as a window may have are in the
// log, one after the other: of a window, any events may be lost, and of earlier ones none.
// Events since the failover do not count; a relay that knew nothing of it, or has forgotten
// what it found, has written them behind the lost ones. unread is the broker's error.
func (l *leadership) compareStream(stream string, since int64) (found comparison, unread, err error) {
	before, known := "", 0
	for known < max(l.BatchSize, usualWindow) {
		entries, unread := l.readBack(stream, before)
		if unread != nil || len(entries) == 0 {
			return found, unread, nil
		}
		before = entries[len(entries)-1].Position
		found.read += int64(len(entries))
		var events []pg.Event
		for _, e := range entries {
			if e.Event.ID != 0 {
				events = append(events, e.Event)
			}
			if e.Event.ID < since {
				known++
			}
		}
		noted, err := insist(l, func() (pg.NotedEntries, error) { return pg.NoteEntries(l.ctx, l.Pool, l.lead, events) })
		if err != nil {
			return found, nil, err
		}
		found.lost, found.refused = found.lost+int64(len(noted.Missing)), found.refused+int64(len(noted.Refused))
		if len(noted.Missing) > 0 {
			known = 0
		}
	}
	return found, nil, nil
}

func (l *leadership) readBack(stream, before string) ([]Entry, error) {
	return insist(l, func() ([]Entry, error) {
		ctx, cancel := context.WithTimeout(l.ctx, l.Timeout)
		defer cancel()
		return l.Read.ReadBack(ctx, stream, before, readBackAtOnce)
	})
}

// insist asks up to five times, while the broker or the database fails: a comparison that began anew
// each time might never end, as long as connections break now and then.
func insist[T any](l *leadership, ask func() (T, error)) (answer T, err error) {
	for tries := 1; tries <= 5; tries++ {
		if answer, err = ask(); err == nil || !worker.Pause(l.going, l.Backoff.after(tries)) {
			break
		}
	}
	return answer, err
}
