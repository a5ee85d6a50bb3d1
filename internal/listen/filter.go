package listen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/pg"
)

// Filter selects events. It has the fields of posthorn.Filter.
type Filter struct {
	Types, Streams   []string
	Keys             []string
	TagsAny, TagsAll []string
	Payload          any
}

// document is a filter as JSON, as the functions of the schema read it too.
type document struct {
	Types   names           `json:"type,omitzero"`
	Streams names           `json:"stream,omitzero"`
	Keys    names           `json:"key,omitzero"`
	TagsAny names           `json:"tags_any,omitzero"`
	TagsAll names           `json:"tags_all,omitzero"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// names is a list of names. In JSON, a list of one name may be written as a string.
type names []string

func (n *names) UnmarshalJSON(text []byte) error {
	var one string
	if err := json.Unmarshal(text, &one); err == nil {
		*n = names{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(n))
}

func (f Filter) document() (document, error) {
	d := document{Types: f.Types, Streams: f.Streams, Keys: f.Keys, TagsAny: f.TagsAny, TagsAll: f.TagsAll}
	if f.Payload == nil {
		return d, nil
	}
	var err error
	d.Payload, err = json.Marshal(f.Payload)
	return d, err
}

// MarshalJSON writes the filter as the functions of the schema read it.
func (f Filter) MarshalJSON() ([]byte, error) {
	d, err := f.document()
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads a filter. An unknown field is an error, because a filter
// without it would let more events pass.
func (f *Filter) UnmarshalJSON(text []byte) error {
	var d document
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return err
	}
	*f = Filter{Types: d.Types, Streams: d.Streams, Keys: d.Keys, TagsAny: d.TagsAny, TagsAll: d.TagsAll}
	if d.Payload != nil {
		f.Payload = d.Payload
	}
	return nil
}

// Compile checks a filter and makes a matcher of it.
func (f Filter) Compile() (*Matcher, error) {
	for _, pattern := range slices.Concat(f.Types, f.Streams) {
		if !consume.ValidPattern(pattern) {
			return nil, fmt.Errorf("%q is not a pattern: write it like order.placed, order.* or order.>", pattern)
		}
	}
	for _, name := range slices.Concat(f.Keys, f.TagsAny, f.TagsAll) {
		if name == "" || len(name) > 255 {
			return nil, fmt.Errorf("a key or tag is of 1 to 255 bytes, %.60q is not", name)
		}
	}
	for _, list := range [][]string{f.Types, f.Streams, f.Keys, f.TagsAny, f.TagsAll} {
		if list != nil && len(list) == 0 {
			return nil, errors.New("an empty list lets nothing pass: leave it out to let everything pass")
		}
	}
	d, err := f.document()
	if err != nil {
		return nil, fmt.Errorf("the payload cannot be written as JSON: %w", err)
	}
	m := &Matcher{payload: anyPayload}
	for _, list := range []struct{ from, to *names }{
		{&d.Types, &m.types}, {&d.Streams, &m.streams}, {&d.Keys, &m.keys}, {&d.TagsAny, &m.tagsAny}, {&d.TagsAll, &m.tagsAll},
	} {
		*list.to = slices.Compact(slices.Sorted(slices.Values(*list.from)))
		*list.from = *list.to
	}
	if d.Payload != nil {
		if m.payload, err = decode(d.Payload); err == nil {
			d.Payload, err = json.Marshal(m.payload) // with its keys in order
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the payload is not JSON: %w", err)
	}
	canonical, err := json.Marshal(d)
	m.name = string(canonical)
	return m, err
}

// Matcher is a compiled filter.
type Matcher struct {
	name                                   string // the same for identical filters
	types, streams, keys, tagsAny, tagsAll names
	payload                                any
}

// anyPayload is the payload of a filter without a condition on the payload.
var anyPayload = new(struct{})

// passes reports whether an event passes the filter.
func (m *Matcher) passes(s *subject) bool {
	switch {
	case len(m.keys) > 0 && !slices.Contains(m.keys, s.Key),
		len(m.types) > 0 && !consume.MatchesAny(m.types, s.Type),
		len(m.streams) > 0 && !consume.MatchesAny(m.streams, s.Stream),
		len(m.tagsAny) > 0 && !slices.ContainsFunc(m.tagsAny, s.hasTag),
		slices.ContainsFunc(m.tagsAll, func(tag string) bool { return !s.hasTag(tag) }):
		return false
	}
	return m.payload == anyPayload || s.contains(m.payload)
}

// subject is an event that filters are checked against. Its payload is decoded for
// the first filter with a condition on the payload.
type subject struct {
	*pg.Event
	payload any
	decoded bool
	broken  bool
}

func (s *subject) hasTag(tag string) bool { return slices.Contains(s.Tags, tag) }

func (s *subject) contains(want any) bool {
	if !s.decoded {
		var err error
		s.payload, err = decode(s.Payload)
		s.decoded, s.broken = true, err != nil
	}
	return !s.broken && contains(s.payload, want)
}

// decode reads JSON, and keeps the notation of numbers.
func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}
