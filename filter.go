package posthorn

import "encoding/json"

// Filter lets events pass that fit all of its fields. The zero value lets
// everything pass.
type Filter struct {
	Types   []string // patterns, such as order.* or order.>, of which one has to match
	Streams []string // the same for streams
	Keys    []string // one of these
	TagsAny []string // at least one of these
	TagsAll []string // all of these
	Payload any      // what the payload contains: a struct or map that encodes as a JSON object
}

// MarshalJSON writes the filter as the database reads it. An empty list, which
// nothing could match, is written, and refused there.
func (f Filter) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Types   []string `json:"type,omitzero"`
		Streams []string `json:"stream,omitzero"`
		Keys    []string `json:"key,omitzero"`
		TagsAny []string `json:"tags_any,omitzero"`
		TagsAll []string `json:"tags_all,omitzero"`
		Payload any      `json:"payload,omitzero"`
	}(f))
}
