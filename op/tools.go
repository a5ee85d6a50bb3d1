package op

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tool describes an operation to programs that choose operations by their texts, such as
// assistants. The namespace is not part of its input.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Scope       Scope  `json:"scope"`
	Changes     bool   `json:"changes"` // the operation changes something
	Asks        bool   `json:"asks"`    // other faces ask a person before it
	Input       Schema `json:"input"`   // of an object with the fields of the input
	Call        string `json:"call"`    // over HTTP; "": HTTP does not have it
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
		d, fields := o.Describe(), Fields(o.New())
		t := Tool{Name: d.Name, Description: d.Does + ". " + d.More, Scope: d.Scope, Changes: o.Changes(), Asks: o.Asks()}
		if d.Without[HTTP] == "" {
			t.Call = d.Method + " " + d.Path
		}
		if d.Method == http.MethodGet { // a filter may have fields for programs alone
			fields = slices.DeleteFunc(fields, func(f Field) bool { return !f.Query && !f.Path })
		}
		t.Input = objectOf(fields)
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
	switch s.Type {
	case "string":
		s.Enum = f.Enum
	case "array":
		s.Items.Enum = f.Enum
	case "integer", "number":
		s.Minimum, s.Maximum = limit(f.tag.Get("minimum")), limit(f.tag.Get("maximum"))
	}
	return s
}

func limit(tag string) *int64 {
	n, err := strconv.ParseInt(tag, 10, 64)
	if err != nil {
		return nil
	}
	return &n
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

// isNeeded reports whether an input without a field is refused. huma, which reads the bodies
// of the HTTP API, refuses those without a field that has no omitempty.
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
