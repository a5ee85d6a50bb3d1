package posthorn

import "github.com/posthorn/posthorn/internal/listen"

// Filter says which events are wanted: those that meet all of its conditions.
// One that is left out lets everything pass, so the zero value is for all events.
//
// As JSON it has the fields type, stream, key, tags_any, tags_all and payload;
// read from JSON, each but payload may be one text or a list.
type Filter struct {
	// Types and Streams are patterns, of which one has to match: order.placed,
	// order.* for one part, order.> for all that follow.
	Types, Streams []string
	// Keys of which the event has one.
	Keys []string
	// TagsAny of which the event has one, and TagsAll of which it has each.
	TagsAny, TagsAll []string
	// Payload is contained in that of the event, as with jsonb's @> operator:
	// {"status": "paid"} in any document with that field, [1] in any array with
	// that element. It is written as JSON by [json.Marshal]; nil looks at no
	// payload.
	Payload any
}

// MarshalJSON writes the filter as SQL reads it.
func (f Filter) MarshalJSON() ([]byte, error) { return listen.Filter(f).MarshalJSON() }

// UnmarshalJSON reads a filter. Fields that it does not know are refused.
func (f *Filter) UnmarshalJSON(text []byte) error { return (*listen.Filter)(f).UnmarshalJSON(text) }
