package op_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

type input struct {
	Namespace string `query:"namespace" flag:"namespace"`
	ID        int64  `path:"id"`
	Body      struct {
		Note    string                     `json:"note,omitempty" flag:"note" page:"text" doc:"A note"`
		Words   []string                   `json:"words" flag:"word"`
		Numbers []int64                    `json:"numbers" flag:"number"`
		Done    bool                       `json:"done" flag:"done"`
		At      time.Time                  `json:"at" flag:"at"`
		Kind    string                     `json:"kind" flag:"kind" page:"-" enum:"a,b"`
		Payload json.RawMessage            `json:"payload" flag:"payload"`
		Secret  string                     `json:"secret" page:"-"`
		Object  map[string]json.RawMessage `json:"object"`
		Inner   int                        `json:"-"`
		Size    int                        `json:"size" maximum:"10"`
		Maybe   *bool                      `json:"maybe"`
		Rate    *float64                   `json:"rate"`
		Headers map[string]string          `json:"headers"`
		Body    string                     `json:"body"`
	}
}

// A form sets the fields that forms have, by their names there.
func TestFill(t *testing.T) {
	t.Parallel()
	var in, want input
	form := map[string]string{
		"namespace": "other", "id": "7", "text": "hello", "words": "a, b,", "numbers": "1,2", "done": "true", "at": "noon",
		"kind": "a", "payload": "{\r\n\"a\": 1}", "secret": "s", "object": `{"b": 2}`, "note": "by its name in JSON",
		"size": "10", "maybe": "false", "rate": "0.5", "headers": `{"a": "b"}`, "body": "payload",
	}
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	err := op.Fill(&in, func(name string) string { return form[name] }, func(string) (time.Time, error) { return noon, nil })
	want.ID, want.Body.Note, want.Body.Words, want.Body.Numbers = 7, "hello", []string{"a", "b"}, []int64{1, 2}
	want.Body.Object = map[string]json.RawMessage{"b": json.RawMessage("2")}
	no, half := false, 0.5
	want.Body.Size, want.Body.Maybe, want.Body.Rate, want.Body.Headers, want.Body.Body = 10, &no, &half, map[string]string{"a": "b"}, "payload"
	want.Body.Done, want.Body.At, want.Body.Payload = true, noon, json.RawMessage(`{"a":1}`)
	if diff := cmp.Diff(want, in); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for name, text := range map[string]string{"id": "0", "numbers": "1,x", "payload": "{", "object": "[]", "size": "11", "rate": "-1", "headers": `{"sesame": 1}`} {
		err := op.Fill(&in, func(n string) string { return map[string]string{name: text}[n] }, nil)
		if !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s %s: %v", name, text, err)
		}
	}
}

// A query has the values of the fields as texts.
func TestText(t *testing.T) {
	t.Parallel()
	if f := op.Fields(&op.NamespaceInput{}); len(f) != 2 || f[1].Name != "metadata" || f[1].Text() != "" {
		t.Errorf("a body that may be left out has the fields %+v", f)
	}
	f := admin.EventFilter{Types: []string{"a", "b"}, Key: "k", From: time.Date(2026, 1, 31, 12, 0, 0, 1, time.UTC), Limit: 7}
	got := map[string]string{}
	for _, field := range op.Fields(&f) {
		if text := field.Text(); text != "" {
			got[field.Name] = text
		}
	}
	if diff := cmp.Diff(map[string]string{"type": "a,b", "key": "k", "from": "2026-01-31T12:00:00.000000001Z"}, got); diff != "" {
		t.Error(diff)
	}
}

// A form has the texts of fields of all types: sent back, they are the same.
func TestTextIsReadBack(t *testing.T) {
	t.Parallel()
	no, half := false, 0.5
	var in, again input
	in.Body.Size, in.Body.Maybe, in.Body.Rate, in.Body.Headers, in.Body.Words = 7, &no, &half, map[string]string{"a": "b"}, []string{"c", "d"}
	in.Body.Object = map[string]json.RawMessage{"n": json.RawMessage("12345678901234567890")}
	texts := map[string]string{}
	for _, f := range op.Fields(&in) {
		texts[f.Form] = f.Text()
	}
	err := op.Fill(&again, func(name string) string { return texts[name] }, nil)
	if diff := cmp.Diff(in, again); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// Every field of a filter that a person may set has a name on each face, and says what it
// means.
func TestFiltersAreWhole(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]any{"dead letters": &admin.DeadLetterFilter{}, "events": &admin.EventFilter{}, "jobs": &admin.JobFilter{}} {
		for _, f := range op.Fields(filter) {
			if f.Doc == "" {
				t.Errorf("%s: %s does not say what it means", name, f.Name)
			}
			if f.Query && f.Flag == "" && f.Name != "limit" { // commands have a limit of their own
				t.Errorf("%s: a command cannot filter by %s", name, f.Name)
			}
		}
	}
}
