package admin_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

// A search goes on after its last event, in either order, and past events that do not
// match.
func TestSearchEvents(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	messages := make([]posthorn.Message, 7)
	for i := range messages {
		messages[i].Type = []string{"even", "odd"}[i%2]
	}
	ids, err := ph.Publish(t.Context(), ph.Pool(), messages...)
	if err != nil {
		t.Fatal(err)
	}
	even := []int64{ids[0], ids[2], ids[4], ids[6]}
	for _, f := range []admin.EventFilter{
		{Order: "oldest", Limit: 3, MaxLooks: 100},
		{Order: "oldest", Limit: 3, MaxLooks: 3},
		{Order: "oldest", Limit: 1, MaxLooks: 1},
		{Limit: 3, MaxLooks: 100},
		{Limit: 1, MaxLooks: 1},
	} {
		f.Types = []string{"even"}
		var found []int64
		for page, more := f, true; more; more = page.After != 0 {
			events, next, err := ph.Admin().SearchEvents(t.Context(), page)
			if err != nil || len(events) > page.Limit {
				t.Fatalf("%+v: %d events, %v", page, len(events), err)
			}
			for _, e := range events {
				found = append(found, e.ID)
			}
			page.After = next
		}
		if f.Order != "oldest" {
			slices.Reverse(found)
		}
		if !slices.Equal(found, even) {
			t.Errorf("%+v found %v, want %v", f, found, even)
		}
	}
	if events, next, err := ph.Admin().Hiding([]string{"default"}).SearchEvents(t.Context(), admin.EventFilter{Limit: 3, MaxLooks: 100}); err != nil || len(events) > 0 || next != 0 {
		t.Errorf("a search of other streams found %+v, %d, %v", events, next, err)
	}
}

// An event is found by its id, and so is a delayed one, unless its stream is excluded.
func TestEvent(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for _, m := range []posthorn.Message{
		{Type: "e", Stream: "s", Key: "k", Tags: []string{"t"}, Payload: json.RawMessage("null")},
		{Type: "later", Stream: "s", Tags: []string{}, Payload: json.RawMessage("1"), DeliverAt: at},
	} {
		ids, err := ph.Publish(t.Context(), ph.Pool(), m)
		if err != nil {
			t.Fatal(err)
		}
		e, err := ph.Admin().Event(t.Context(), ids[0])
		e.PublishedAt, e.Metadata = time.Time{}, nil
		if want := (admin.Event{
			ID: ids[0], Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, Payload: m.Payload.(json.RawMessage), DeliverAt: e.DeliverAt,
		}); err != nil || !reflect.DeepEqual(e, want) || !e.DeliverAt.Equal(m.DeliverAt) {
			t.Errorf("found %+v, %v; want %+v", e, err, want)
		}
		if _, err := ph.Admin().Hiding([]string{"r", "s"}).Event(t.Context(), ids[0]); !errors.Is(err, posthorn.ErrNotFound) {
			t.Errorf("without its stream, event %d is found: %v", ids[0], err)
		}
	}
}
