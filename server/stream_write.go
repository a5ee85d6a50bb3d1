package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// eventWriter writes server-sent events, and flushes each of them.
type eventWriter struct {
	w              http.ResponseWriter
	control        *http.ResponseController
	writeTimeout   time.Duration
	minReconnectIn time.Duration // the shortest time after which the reader is told to come back
	buffer         bytes.Buffer
}

// disconnectedError is an error of writing to the connection.
type disconnectedError struct{ error }

func (e *disconnectedError) Unwrap() error { return e.error }

func beginStream(w http.ResponseWriter, writeTimeout, minReconnectIn time.Duration) *eventWriter {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no") // without it nginx buffers events
	w.WriteHeader(http.StatusOK)
	return &eventWriter{
		w: w, control: http.NewResponseController(w), writeTimeout: writeTimeout, minReconnectIn: minReconnectIn,
	}
}

// send writes an event. Its data must not have line breaks.
func (o *eventWriter) send(name, id string, data []byte) error {
	if name != "" {
		fmt.Fprintf(&o.buffer, "event: %s\n", name)
	}
	fmt.Fprintf(&o.buffer, "id: %s\ndata: %s\n\n", id, data)
	return o.flush()
}

// comment writes a line that readers ignore. No empty line follows it, because some
// readers would take that for the end of an event.
func (o *eventWriter) comment(text string) error {
	fmt.Fprintf(&o.buffer, ": %s\n", text)
	return o.flush()
}

// retry tells the reader, together with the next event, how long to wait before it comes
// back. The time is random, so that not all readers come back at once.
func (o *eventWriter) retry() {
	after := o.minReconnectIn + rand.N(5*o.minReconnectIn)
	fmt.Fprintf(&o.buffer, "retry: %d\n", after.Milliseconds())
}

func (o *eventWriter) flush() error {
	err := o.control.SetWriteDeadline(time.Now().Add(o.writeTimeout))
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		_, err = o.w.Write(o.buffer.Bytes())
	}
	if err == nil {
		err = o.control.Flush()
	}
	o.buffer.Reset()
	if err != nil {
		return &disconnectedError{err}
	}
	return nil
}

// eventName returns the name of the server-sent event for a type. Names that browsers or
// control events use are replaced.
func eventName(typ string) string {
	switch typ {
	case "open", "error", "heartbeat", "slow", "bye":
		return "message"
	}
	return typ
}

func controlData(cursor, detail string) []byte {
	data, err := json.Marshal(struct {
		Cursor string `json:"cursor"`
		Detail string `json:"detail,omitempty"`
	}{cursor, detail})
	if err != nil {
		panic(err) // strings always encode
	}
	return data
}
