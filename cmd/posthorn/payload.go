package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// payload reads the payload from the argument, or from the standard input if the argument
// is "-".
func payload(stdin io.Reader, args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if args[0] != "-" {
		return document("payload", []byte(args[0]))
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, usageError{errors.New("the standard input is empty"), "it should hold one JSON document"}
	}
	return document("payload", text)
}

// document checks JSON before it is sent, so that the error can name the argument.
func document(argument string, text []byte) (json.RawMessage, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, nil
	}
	var parsed json.RawMessage
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, usageError{fmt.Errorf("the %s is not valid JSON: %w", argument, err), `text needs double quotes: '"like this"'`}
	}
	return text, nil
}

// optional is the payload of a message. A payload that was not given must be nil, since
// an empty document is not valid JSON.
func optional(payload json.RawMessage) any {
	if payload == nil {
		return nil
	}
	return payload
}

// metadataFlag reads the value of --metadata.
func metadataFlag(text string) (map[string]any, error) {
	raw, err := document("metadata", []byte(text))
	if err != nil || raw == nil {
		return metadata(nil), err
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, usageError{errors.New("the metadata is not a JSON object"), `write it like '{"trace": "7"}'`}
	}
	return metadata(given), nil
}

// metadata is the metadata of a message or job. The client would add its node id as the
// producer, but a command is no node.
func metadata(given map[string]json.RawMessage) map[string]any {
	all := map[string]any{"producer": nil}
	for name, value := range given {
		all[name] = value
	}
	return all
}

// futureFlag is the time that a flag gives, by the database's clock; zero if it is empty.
func futureFlag(ctx context.Context, adm *admin.Admin, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	now, err := adm.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return futureTime(value, now)
}
