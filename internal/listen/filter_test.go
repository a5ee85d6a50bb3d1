package listen

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/internal/pg"
)

func compile(t testing.TB, f Filter) *Matcher {
	t.Helper()
	m, err := f.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFilterAsJSON(t *testing.T) {
	t.Parallel()
	full := Filter{
		Types: []string{"order.*"}, Streams: []string{"a", "b"}, Keys: []string{"7"},
		TagsAny: []string{"x"}, TagsAll: []string{"y", "z"}, Payload: json.RawMessage(`{"status":"paid"}`),
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":["order.*"],"stream":["a","b"],"key":["7"],"tags_any":["x"],"tags_all":["y","z"],"payload":{"status":"paid"}}`
	if string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	for text, want := range map[string]Filter{
		want: full,
		`{}`: {},
		`{"type": "order.*", "key": "7", "stream": []}`: {Types: []string{"order.*"}, Keys: []string{"7"}, Streams: []string{}},
	} {
		var got Filter
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{`{"types": ["order.*"]}`, `{"type": 7}`, `{"tags_any": {}}`, `[]`} {
		if err := json.Unmarshal([]byte(text), &Filter{}); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// Identical filters have the same name, in any notation; different ones do not.
func TestIdenticalFilters(t *testing.T) {
	t.Parallel()
	alike := [][]Filter{
		{{}},
		{{Types: []string{"a", "b"}}, {Types: []string{"b", "a", "b"}}},
		{{Streams: []string{"a", "b"}}},
		{{Keys: []string{"a", "b"}}},
		{{TagsAny: []string{"a", "b"}}},
		{{TagsAll: []string{"a", "b"}}},
		{{Keys: []string{"a,b"}}},
		{
			{Payload: map[string]any{"a": 1, "b": []int{2}}},
			{Payload: json.RawMessage(` { "b":[2], "a" : 1 }`)},
			{Payload: struct {
				B [1]int `json:"b"`
				A int    `json:"a"`
			}{[1]int{2}, 1}},
		},
		{{Payload: json.RawMessage("null")}},
		{{Payload: map[string]any{}}, {Payload: json.RawMessage("{}")}},
	}
	names := map[string]int{}
	for i, filters := range alike {
		for _, f := range filters {
			name := compile(t, f).name
			if other, known := names[name]; known && other != i {
				t.Errorf("%+v has the name of %+v", f, alike[other][0])
			}
			names[name] = i
		}
	}
	if len(names) != len(alike) {
		t.Errorf("%d names for %d different filters", len(names), len(alike))
	}
}

// An event whose payload is not JSON passes no filter with a condition on the
// payload; other filters are not affected.
func TestBrokenPayload(t *testing.T) {
	t.Parallel()
	s := &subject{Event: &pg.Event{Payload: []byte(`{"a`)}}
	if !compile(t, Filter{}).passes(s) || compile(t, Filter{Payload: json.RawMessage(`{}`)}).passes(s) {
		t.Error("it passes where it should not, or does not where it should")
	}
}

// A filter that several listeners share is checked once, and is removed from the
// index with its last listener. seed 001.50-59
func TestIdenticalFiltersShare(t *testing.T) {
	t.Parallel()
	x := newIndex()
	filters := []Filter{
		{},
		{Keys: []string{"k", "l"}},
		{Types: []string{"t", "u"}},
		{Streams: []string{"s"}},
		{Types: []string{"t.*"}},
		{Types: []string{"t.*"}, Streams: []string{"s"}},
		{TagsAny: []string{"x"}},
	}
	const each = 5
	var listeners []*Listener
	for range each {
		for _, f := range filters {
			l := &Listener{filter: compile(t, f)}
			x.add(l)
			listeners = append(listeners, l)
		}
	}
	if len(x.byName) != len(filters) || len(x.rest) != 3 {
		t.Errorf("%d entries for %d filters, %d in the rest", len(x.byName), len(filters), len(x.rest))
	}
	found := 0
	s := &subject{Event: &pg.Event{Type: "t", Stream: "s", Key: "k", Tags: []string{"x"}}}
	x.find(s, func(e *entry) {
		found++
		if len(e.listeners) != each {
			t.Errorf("%s has %d listeners", e.name, len(e.listeners))
		}
	})
	if found != 5 {
		t.Errorf("%d filters pass", found)
	}
	for _, l := range listeners {
		x.remove(l)
		x.remove(l)
	}
	if !x.isEmpty() || len(x.byKey)+len(x.byType)+len(x.byStream)+len(x.rest) > 0 {
		t.Errorf("left: %+v", x)
	}
}

// With ten thousand filters, each for one key, an event costs hardly more than with one.
func BenchmarkFind(b *testing.B) {
	for _, filters := range []int{1, 10_000} {
		b.Run("", func(b *testing.B) {
			x := newIndex()
			for i := range filters {
				x.add(&Listener{filter: compile(b, Filter{Keys: []string{string(rune('a' + i))}, Types: []string{"order.*"}})})
			}
			s := &subject{Event: &pg.Event{Type: "order.placed", Key: "a"}}
			for b.Loop() {
				x.find(s, func(*entry) {})
			}
		})
	}
}
