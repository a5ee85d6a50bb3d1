package server

import (
	"bytes"
	"encoding/json"
)

// encode writes an event as all of the server shows it, on one line.
func (st *eventStream) encode(e eventView) ([]byte, error) {
	var shown any = e
	if st.cloudEvents {
		var err error
		if shown, err = cloudEventOf(st.caller.namespace, e); err != nil {
			return nil, err
		}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(shown); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), nil
}
