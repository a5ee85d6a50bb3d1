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

// eventWriter writes server-sent events, each at once.
type eventWriter struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	comeBack time.Duration // the shortest time after which a reader is told to come back
	buffer   bytes.Buffer
}

// goneError is one of the connection.
type goneError struct{ error }

func (e *goneError) Unwrap() error { return e.error }

func beginStream(w http.ResponseWriter, patience, comeBack time.Duration) *eventWriter {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no") // nginx would collect events
	w.WriteHeader(http.StatusOK)
	return &eventWriter{w: w, control: http.NewResponseController(w), patience: patience, comeBack: comeBack}
}

// send writes an event. Its data has no line breaks.
func (o *eventWriter) send(name, id string, data []byte) error {
	if name != "" {
		fmt.Fprintf(&o.buffer, "event: %s\n", name)
	}
	fmt.Fprintf(&o.buffer, "id: %s\ndata: %s\n\n", id, data)
	return o.flush()
}

// comment writes a line that readers leave out. There is no empty line after it,
// which some would take for the end of an event.
func (o *eventWriter) comment(text string) error {
	fmt.Fprintf(&o.buffer, ": %s\n", text)
	return o.flush()
}

// retry tells the reader, with the next event, how long to wait before it comes
// back. Each reader gets another time, so that they do not come back all at once.
func (o *eventWriter) retry() {
	after := o.comeBack + rand.N(5*o.comeBack)
	fmt.Fprintf(&o.buffer, "retry: %d\n", after.Milliseconds())
}

func (o *eventWriter) flush() error {
	err := o.control.SetWriteDeadline(time.Now().Add(o.patience))
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		_, err = o.w.Write(o.buffer.Bytes())
	}
	if err == nil {
		err = o.control.Flush()
	}
	o.buffer.Reset()
	if err != nil {
		return &goneError{err}
	}
	return nil
}

// eventName is under which name a browser hears of a type. Some mean something
// else, to it or to us.
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
		panic(err) // of two texts
	}
	return data
}
