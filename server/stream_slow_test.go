package server

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// A slow reader gets the events that fit the buffer, then the event slow. It continues from
// there and gets every event once. Other readers do not wait for it.
func TestStreamSlowReader(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.openStreams.buffer = 10
	s.server.openStreams.writeTimeout = time.Hour // this reader accepts data, even on a slow machine
	slow := s.read(t, "")
	quick := s.read(t, "")
	large := strings.Repeat("x", 64<<10)
	var ids []int64
	for range 30 { // more than fit the buffer and the connection
		id := posthorntest.Publish(t, s.ph, posthorn.Message{Type: "e", Payload: large})
		equal(t, "quick", quick.ids(1), id)
		ids = append(ids, id...)
	}
	var got []int64
	cuts := 0
	for len(got) < len(ids) {
		h, err := slow.next()
		switch {
		case err != nil:
			t.Fatalf("cut off without a word after %d events: %v", len(got), err)
		case h.isEvent():
			got = append(got, h.event(t).ID)
		case h.name == "slow":
			cuts++
			if _, err := slow.next(); !errors.Is(err, io.EOF) {
				t.Errorf("after its last event: %v", err)
			}
			slow = s.read(t, "", "Last-Event-ID: "+h.id)
		}
	}
	equal(t, "slow", got, ids)
	equal(t, "times it was cut off", cuts, 1)
	more := s.publish(t, 1)
	equal(t, "later", slow.ids(1), more)
}

// A reader that accepts no data is disconnected, possibly in the middle of an event, which
// then counts as not sent.
func TestStreamStuckReader(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.server.openStreams.writeTimeout = 50 * time.Millisecond
	stuck := s.read(t, "")
	large := strings.Repeat("x", 256<<10)
	var ids []int64
	for s.server.openStreams.count.Load() > 0 {
		ids = append(ids, posthorntest.Publish(t, s.ph, posthorn.Message{Type: "e", Payload: large})...)
	}
	var got []int64
	for {
		h, err := stuck.next()
		if err != nil {
			break
		}
		got = append(got, h.event(t).ID)
	}
	if len(got) == len(ids) {
		t.Error("it has got everything")
	}
	s.server.openStreams.writeTimeout = time.Hour
	rest := s.read(t, "", "Last-Event-ID: "+stuck.last)
	equal(t, "received", append(got, rest.ids(len(ids)-len(got))...), ids)
}
