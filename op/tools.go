package op

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// Tool describes an operation to programs that choose operations by their texts, such as
// assistants. The namespace is not part of its input.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Scope       Scope  `json:"scope"`
	Changes     bool   `json:"changes"` // it is no operation that only looks
	Asks        bool   `json:"asks"`    // other faces ask a person before it
	Input       Schema `json:"input"`   // of an object with the fields of the input
	Call        string `json:"call"`    // over HTTP; "": only in Go and in SQL
}

// Schema is a JSON schema, as far as inputs need one.
type Schema struct {
	Type        string            `json:"type,omitempty"` // "": any JSON
	Format      string            `json:"format,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	Minimum     *int64            `json:"minimum,omitempty"`
	Maximum     *int64            `json:"maximum,omitempty"`
	Items       *Schema           `json:"items,omitempty"`
	Values      *Schema           `json:"additionalProperties,omitempty"`
	Properties  map[string]Schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
}

// Tools returns all operations as tools.
func Tools() []Tool {
	var all []Tool
	for _, o := range All() {
		d := o.Describe()
		t := Tool{Name: d.Name, Description: d.Does + ". " + d.More, Scope: d.Scope, Changes: o.Changes(), Asks: o.Asks(), Input: objectOf(Fields(o.New()))}
		if d.Without[HTTP] == "" {
			t.Call = d.Method + " " + d.Path
		}
		all = append(all, t)
	}
	return all
}

func objectOf(fields []Field) Schema {
	s := Schema{Type: "object", Properties: map[string]Schema{}}
	for _, f := range fields {
		s.Properties[f.Name] = f.schema()
		if f.Needed {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

func (f Field) schema() Schema {
	s := schemaOf(f.Value.Type())
	s.Description = f.Doc
	if s.Type == "string" {
		s.Enum = f.Enum
	}
	if s.Type == "integer" {
		s.Minimum = &f.Least
		if f.Most > 0 {
			s.Maximum = &f.Most
		}
	}
	return s
}

// schemaOf returns the schema of a type of Go as encoding/json reads it.
func schemaOf(t reflect.Type) Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return Schema{}
	}
	switch t.Kind() {
	case reflect.String:
		return Schema{Type: "string"}
	case reflect.Bool:
		return Schema{Type: "boolean"}
	case reflect.Float64:
		return Schema{Type: "number"}
	case reflect.Slice:
		items := schemaOf(t.Elem())
		return Schema{Type: "array", Items: &items}
	case reflect.Map:
		values := schemaOf(t.Elem())
		return Schema{Type: "object", Values: &values}
	case reflect.Struct:
		return objectOf(fieldsOf(reflect.New(t).Elem()))
	}
	return Schema{Type: "integer"}
}

// isNeeded reports whether an input without a field is refused, as the HTTP API decides.
func isNeeded(tag reflect.StructTag) bool {
	_, options, _ := strings.Cut(tag.Get("json"), ",")
	switch {
	case tag.Get("path") != "", tag.Get("required") == "true":
		return true
	case tag.Get("query") != "":
		return false
	}
	return !strings.Contains(options, "omit")
}
