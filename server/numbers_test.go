package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// Numbers that are too large are refused, in every field and parameter of every
// operation.
func TestNumbersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_group('default', 'x')")
	tried := 0
	for path, item := range s.server.api.OpenAPI().Paths {
		for method, operation := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "DELETE": item.Delete} {
			if operation == nil {
				continue
			}
			for _, request := range s.numberRequests(path, operation) {
				tried++
				if got := s.call(t, method, request.path, request.body); got.status >= http.StatusInternalServerError {
					t.Errorf("%s %s %v: %d %s", method, request.path, request.body, got.status, got.body)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("%d requests were tried, want 200 or more", tried)
	}
}

type numberRequest struct {
	path string
	body any // a string, or nil
}

// numberRequests returns requests that each have one number that is too large.
func (s *served) numberRequests(path string, operation *huma.Operation) (all []numberRequest) {
	body, bodies := any(nil), []string(nil)
	if schema := s.bodySchema(operation); schema != nil {
		valid, broken := s.withNumbers(schema)
		body, bodies = valid, broken
	}
	for _, number := range []string{"2147483648", "-2147483649", "9223372036854775807", "1e400"} {
		for i, parameter := range operation.Parameters {
			if parameter.In == "header" || !isNumber(parameter.Schema) {
				continue
			}
			all = append(all, numberRequest{addressOf(path, operation, i, number), body})
		}
		for _, broken := range bodies {
			all = append(all, numberRequest{addressOf(path, operation, -1, ""), strings.ReplaceAll(broken, tooLarge, number)})
		}
	}
	return all
}

// tooLarge is the placeholder of a number in a body.
const tooLarge = "TOO LARGE"

func isNumber(schema *huma.Schema) bool {
	return schema.Type == huma.TypeInteger || schema.Type == huma.TypeNumber
}

// addressOf returns a path with its required parameters, and a number in one parameter.
func addressOf(path string, operation *huma.Operation, which int, number string) string {
	var query []string
	for i, parameter := range operation.Parameters {
		value := "1"
		if !isNumber(parameter.Schema) {
			value = "x"
		}
		if i == which {
			value = number
		}
		switch {
		case parameter.In == "path":
			path = strings.ReplaceAll(path, "{"+parameter.Name+"}", value)
		case parameter.In == "query" && (parameter.Required || i == which):
			query = append(query, parameter.Name+"="+value)
		}
	}
	return path + "?" + strings.Join(query, "&")
}

func (s *served) bodySchema(operation *huma.Operation) *huma.Schema {
	if operation.RequestBody == nil {
		return nil
	}
	if content := operation.RequestBody.Content["application/json"]; content != nil {
		return s.resolved(content.Schema)
	}
	return nil
}

// resolved follows references. Of several alternatives it returns the first.
func (s *served) resolved(schema *huma.Schema) *huma.Schema {
	for schema.Ref != "" || len(schema.OneOf) > 0 {
		if schema.Ref != "" {
			schema = s.server.api.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
		} else {
			schema = schema.OneOf[0]
		}
	}
	return schema
}

// withNumbers returns a document of a schema with its required fields, and a document for
// each number in the schema, also in optional fields.
func (s *served) withNumbers(schema *huma.Schema) (valid string, broken []string) {
	schema = s.resolved(schema)
	switch schema.Type {
	case huma.TypeInteger, huma.TypeNumber:
		return "1", []string{tooLarge}
	case huma.TypeBoolean:
		return "true", nil
	case huma.TypeArray:
		valid, broken = s.withNumbers(schema.Items)
		for i := range broken {
			broken[i] = "[" + broken[i] + "]"
		}
		return "[" + valid + "]", broken
	case huma.TypeObject:
		return s.objectWithNumbers(schema)
	case huma.TypeString:
		return s.text(schema), nil
	default:
		return "{}", nil
	}
}

func (s *served) text(schema *huma.Schema) string {
	switch {
	case len(schema.Enum) > 0:
		return fmt.Sprintf("%q", schema.Enum[0])
	case len(schema.Examples) > 0:
		return fmt.Sprintf("%q", schema.Examples[0])
	case schema.Format == "date-time":
		return `"2026-01-31T12:00:00Z"`
	}
	return `"x"`
}

func (s *served) objectWithNumbers(schema *huma.Schema) (valid string, broken []string) {
	required, parts := map[string]string{}, map[string][]string{}
	for name, property := range schema.Properties {
		value, numbers := s.withNumbers(property)
		if slices.Contains(schema.Required, name) {
			required[name] = value
		}
		parts[name] = numbers
	}
	write := func(name, value string) string {
		fields := []string{}
		for other, text := range required {
			if other != name {
				fields = append(fields, fmt.Sprintf("%q: %s", other, text))
			}
		}
		if name != "" {
			fields = append(fields, fmt.Sprintf("%q: %s", name, value))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	for name, numbers := range parts {
		for _, number := range numbers {
			broken = append(broken, write(name, number))
		}
	}
	return write("", ""), broken
}

// An error quotes a long input only in part.
func TestErrorsAreShort(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := strings.Repeat("x", 1<<20)
	for _, request := range []struct{ method, path, body string }{
		{"PUT", "/v1/groups/g", `{"start":"` + long + `"}`},
		{"PUT", "/v1/groups/g", `{"` + long + `":1}`},
		{"PUT", "/v1/groups/g", `{"delays":[` + strings.Repeat("1,", 100_000) + `1]}`},
		{"PUT", "/v1/groups/g", `{"delays":["` + long + `"]}`},
		{"POST", "/v1/groups/g/seek", `{"to":"` + long + `"}`},
		{"PUT", "/v1/subscriptions/g/s", `{"filter":{"` + long + `":1}}`},
		{"PUT", "/v1/subscriptions/g/s", `{"conditions_sql":"e.` + long + `"}`},
		{"PUT", "/v1/schedules/s", `{"cron_expression":"` + long + `","event_type":"a"}`},
		{"PUT", "/v1/schedules/s", `{"cron_expression":"@daily","event_type":"a","timezone":"` + long + `"}`},
		{"POST", "/v1/events", `{"type":"a","deliver_at":"` + long + `"}`},
		{"POST", "/v1/events", `{"type":"a","` + long + `":1}`},
		{"POST", "/events", `{"title":"t","tags":"mail","payload":{},"run_at":"` + long + `"}`},
		{"POST", "/v1/dead-letters/purge", `{"group":"` + long + `"}`},
		{"POST", "/events/1/start", `{"worker_id":"` + long + `"}`},
	} {
		got := s.call(t, request.method, request.path, request.body)
		if got.status < 400 || got.status >= 500 || len(got.body) > 10_000 {
			t.Errorf("%s %s %.40s: status %d with %d bytes: %.200s", request.method, request.path, request.body, got.status, len(got.body), got.body)
		}
	}
}
