package op

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
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
	MaxItems    int64             `json:"maxItems,omitempty"`
	Values      *Schema           `json:"additionalProperties,omitempty"`
	Properties  map[string]Schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`

	Follows string `json:"-"` // the field of an earlier answer that it repeats
	Secret  bool   `json:"-"` // conversations are kept, so an assistant does not give it
}

// Tools returns all operations as tools.
func Tools() []Tool {
	var all []Tool
	for _, o := range All() {
		d := o.Describe()
		t := Tool{Name: d.Name, Description: d.Does + ". " + d.More, Scope: d.Scope, Changes: o.Changes(), Asks: o.Asks()}
		if d.Without[HTTP] == "" {
			t.Call = d.Method + " " + d.Path
		}
		t.Input = objectOf(toolFields(o, o.New()))
		all = append(all, t)
	}
	return all
}

// toolFields returns the fields of an input that a tool has: a filter may have fields for programs alone.
func toolFields(o Any, in any) []Field {
	fields := Fields(in)
	if o.Describe().Method == http.MethodGet {
		fields = slices.DeleteFunc(fields, func(f Field) bool { return !f.Query && !f.Path })
	}
	return fields
}

// ReadTool sets an input to values of JSON, by the names that the tool has for them. It refuses values that the schema
// of the tool does not allow, those that repeat a part of an earlier answer, which Run does not read, and secrets.
func ReadTool(o Any, in any, values map[string]json.RawMessage) error {
	fields := slices.DeleteFunc(toolFields(o, in), func(f Field) bool { return f.Follows != "" })
	for name := range values {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i >= 0 && fields[i].Secret {
			return pg.Invalid(name+" may be a secret, and this conversation is kept", "A person gives it, by the command or on the page.")
		}
		if i < 0 {
			return pg.Invalid(o.Describe().Name+" has no input "+name, "Its inputs are in its schema.")
		}
	}
	for _, f := range fields {
		if err := f.read(values[f.Name]); err != nil {
			return err
		}
	}
	if checked, ok := in.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

// read sets the field to a value of JSON, or to its default if there is none.
func (f Field) read(value json.RawMessage) error {
	if len(value) == 0 || string(value) == "null" {
		if f.Needed {
			return pg.Invalid(f.Name+" is missing", f.Doc+".")
		}
		if text := f.tag.Get("default"); text != "" {
			return f.Set(text)
		}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(f.Value.Addr().Interface()); err != nil {
		return pg.Invalid(f.Name+" is not valid: "+plainJSON(err), f.Doc+".")
	}
	return f.allowed()
}

// allowed refuses a value that is none of the enum, or a number outside of its limits.
func (f Field) allowed() error {
	switch v := reflect.Indirect(f.Value).Interface().(type) {
	case string:
		return f.listed(v)
	case []string:
		for _, word := range v {
			if err := f.listed(word); err != nil {
				return err
			}
		}
	case int, int64:
		if f.tag.Get("minimum") != "" || f.Most > 0 {
			return f.within(reflect.Indirect(f.Value).Int())
		}
	}
	return nil
}

func (f Field) listed(word string) error {
	if f.Enum != nil && !slices.Contains(f.Enum, word) {
		return pg.Invalid(fmt.Sprintf("%s is not %s", f.Name, word), "It is one of "+strings.Join(f.Enum, ", ")+".")
	}
	return nil
}

// plainJSON is an error of encoding/json without names of Go.
func plainJSON(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "a " + wrong.Value + " does not fit"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
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
	s.Description, s.Follows, s.Secret = f.Doc, f.Follows, f.Secret
	switch s.Type {
	case "string":
		s.Enum = f.Enum
	case "array":
		s.Items.Enum, s.MaxItems = f.Enum, f.Longest
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
