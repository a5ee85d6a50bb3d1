package pg

import (
	"encoding/binary"
	"encoding/json"

	"github.com/jackc/pgx/v5/pgtype"
)

// batchEncoder encodes messages as the arguments of publish_in_turn, in binary format. It
// keeps its memory: pgx would allocate for each value.
type batchEncoder struct{ memory []byte }

// mostMemory bounds the memory that an encoder keeps.
const mostMemory = 1 << 20

// encode returns arguments that are valid until the next call.
func (e *batchEncoder) encode(namespace string, messages []Message) []any {
	var types, payloads, streams, keys, tags, metadata encoded
	m := e.memory[:0]
	m, types = appendArray(m, pgtype.TextOID, messages, func(m *Message) (string, bool) { return m.Type, true })
	m, payloads = appendArray(m, pgtype.JSONOID, messages, payloadOf)
	m, streams = appendArray(m, pgtype.TextOID, messages, func(m *Message) (string, bool) {
		return m.Stream, m.Stream != "" && m.Stream != "default"
	})
	m, keys = appendArray(m, pgtype.TextOID, messages, func(m *Message) (string, bool) { return m.Key, m.Key != "" })
	m, tags = appendArray(m, pgtype.TextOID, messages, literalOf)
	m, metadata = appendArray(m, pgtype.JSONOID, messages, func(m *Message) (json.RawMessage, bool) {
		return m.Metadata, len(m.Metadata) > 0
	})
	if cap(m) <= mostMemory {
		e.memory = m
	}
	return []any{namespace, types, payloads, streams, keys, tags, metadata}
}

func payloadOf(m *Message) (json.RawMessage, bool) {
	if len(m.Payload) == 0 {
		return empty, true
	}
	return m.Payload, true
}

func literalOf(m *Message) (string, bool) {
	if len(m.Tags) == 0 {
		return "", false
	}
	return arrayLiteral(m.Tags), true
}

// appendArray appends a value of each message as an array. Where value returns false, the
// element is null. If all are null, so is the array.
func appendArray[T ~string | ~[]byte](
	memory []byte, element uint32, messages []Message, value func(*Message) (T, bool),
) (all, array []byte) {
	const null = 1<<32 - 1
	b := binary.BigEndian
	start, given := len(memory), false
	for _, header := range []uint32{1, 1, element, uint32(len(messages)), 1} { // dimensions, may have nulls, type, length, lower bound
		memory = b.AppendUint32(memory, header)
	}
	for i := range messages {
		v, ok := value(&messages[i])
		if !ok {
			memory = b.AppendUint32(memory, null)
			continue
		}
		given = true
		memory = append(b.AppendUint32(memory, uint32(len(v))), v...)
	}
	if !given {
		return memory[:start], nil
	}
	return memory, memory[start:]
}
