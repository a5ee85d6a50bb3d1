package server

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/listen"
)

// eventStream sends the events of one listener to one reader.
type eventStream struct {
	streamRequest
	server   *Server
	caller   caller
	checked  time.Time // when the caller was authorized
	listener *listen.Listener
	out      *eventWriter

	nextHeartbeat time.Time // moved by everything that is sent
	endsAt        time.Time
	sentCursor    string // the cursor that the reader has
}

// run sends events until ctx ends or the stream has reached its age. It begins with a
// heartbeat, so that a reader has a cursor to come back with before the first event.
func (st *eventStream) run(ctx context.Context) error {
	st.out.retry()
	err := st.control("heartbeat", "")
	for err == nil && ctx.Err() == nil && time.Now().Before(st.endsAt) {
		err = st.step(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// step sends the next event. If none arrives until a heartbeat is due, it sends that.
func (st *eventStream) step(ctx context.Context) error {
	if !time.Now().Before(st.nextHeartbeat) {
		if err := st.recheck(ctx); err != nil {
			return err
		}
		return st.heartbeat()
	}
	until := st.nextHeartbeat
	if st.endsAt.Before(until) {
		until = st.endsAt
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	st.listener.Done() // the previous event was sent, or the reader may not see it
	e, err := st.listener.Next(wait)
	switch {
	case err != nil && wait.Err() != nil:
		return nil // a heartbeat is due, or the stream ends
	case err != nil:
		return err
	}
	if err := st.recheck(ctx); err != nil {
		return err
	}
	if !st.server.admin(st.caller).Reads(e.Stream) {
		return nil
	}
	view, err := st.open(ctx, *e.Event)
	if err != nil {
		return err
	}
	return st.event(e.Cursor(), view)
}

// recheck authorizes the caller again, if some time has passed: its token may have been
// revoked, or a stream restricted.
func (st *eventStream) recheck(ctx context.Context) (err error) {
	if time.Since(st.checked) < st.server.openStreams.recheckAfter {
		return nil
	}
	st.caller, err = st.server.reauthorize(ctx, st.caller)
	st.checked = time.Now()
	return err
}

func (st *eventStream) event(cursor string, e eventView) error {
	data, err := st.encode(e)
	if err != nil { // Postgres accepts JSON that is nested more deeply than Go does
		st.server.log.Error("an event cannot be encoded for a reader", "event", e.ID, "error", err)
		e.Payload, e.Metadata = nil, nil
		if data, err = st.encode(e); err != nil {
			return err
		}
	}
	name := ""
	if st.named {
		name = eventName(e.Type)
	}
	return st.send(name, cursor, data)
}

// encode writes an event as JSON on one line, as all other responses do.
func (st *eventStream) encode(e eventView) ([]byte, error) {
	var document any = e
	if st.cloudEvents {
		var err error
		if document, err = cloudEventOf(st.caller.namespace, e); err != nil {
			return nil, err
		}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), nil
}

// heartbeat keeps the connection open. If the cursor has moved past events that did not
// match, it sends the cursor, in an event with data: some clients ignore the id of an
// event without data.
func (st *eventStream) heartbeat() error {
	if st.listener.Cursor() != st.sentCursor {
		return st.control("heartbeat", "")
	}
	st.nextHeartbeat = time.Now().Add(st.server.options.Heartbeat)
	return st.out.comment("heartbeat")
}

// control sends an event that is not from the log, with the cursor.
func (st *eventStream) control(name, detail string) error {
	cursor := st.listener.Cursor()
	return st.send(name, cursor, controlData(cursor, detail))
}

func (st *eventStream) send(name, cursor string, data []byte) error {
	st.sentCursor, st.nextHeartbeat = cursor, time.Now().Add(st.server.options.Heartbeat)
	return st.out.send(name, cursor, data)
}
