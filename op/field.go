package op

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Field is a field of an input, such as a filter of package admin. Its tags say how each
// face names it: path, query and json those of the HTTP API, flag that of the command, and
// page that in forms of the page. doc says what it means.
//
//	Group string `json:"group,omitempty" query:"group" flag:"group" doc:"Default: all groups"`
//
// secret marks values that no face may keep.
//
// Without the tag page, forms have the name that the HTTP API has; page:"-" leaves the field
// out of forms. A field that names the thing of an operation is an argument of its command.
// follows names the field of an earlier answer that the field repeats: faces whose answers
// lack that field leave it out.
type Field struct {
	Name    string   // in the HTTP API
	Flag    string   // "": the command does not have it
	Form    string   // "": forms do not have it
	Follows string   // the field of an earlier answer that it repeats
	Doc     string   // a sentence without its full stop
	Enum    []string // all values; nil: any
	Query   bool     // it is a parameter of a query
	Path    bool     // it names the thing that an operation is about
	Needed  bool     // an input without it is refused
	Secret  bool     // it is, or may have, a secret: tools do not take it
	Least   int64    // of a number. Default: 1
	Most    int64    // of a number; 0: any
	Longest int64    // the largest number of elements of a list or an object; 0: there is no such limit
	Value   reflect.Value

	tag reflect.StructTag
}

// Fields returns the fields of an input, which is a pointer to a struct.
func Fields(in any) []Field { return fieldsOf(reflect.ValueOf(in).Elem()) }

func fieldsOf(v reflect.Value) []Field {
	var all []Field
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if part, ok := partOf(v, i); ok {
			all = append(all, fieldsOf(part)...)
			continue
		}
		tag := field.Tag.Get
		body, _, _ := strings.Cut(tag("json"), ",")
		f := Field{
			Name: first(tag("path"), tag("query"), body), Flag: tag("flag"), Form: tag("page"), Follows: tag("follows"), Doc: tag("doc"),
			Query: tag("query") != "", Path: tag("path") != "", Needed: isNeeded(field.Tag), Secret: tag("secret") == "true", Value: v.Field(i), tag: field.Tag,
		}
		if f.Name == "" || f.Name == "-" || tag("query") == "namespace" { // each face has its own namespace
			continue
		}
		if enum := tag("enum"); enum != "" {
			f.Enum = strings.Split(enum, ",")
		} else if field.Type == reflect.TypeFor[*bool]() { // without a value it stays as it is
			f.Enum = []string{"true", "false"}
		}
		f.Least, _ = strconv.ParseInt(first(tag("minimum"), "1"), 10, 64)
		f.Most, _ = strconv.ParseInt(tag("maximum"), 10, 64)
		f.Longest, _ = strconv.ParseInt(first(tag("maxItems"), tag("maxProperties")), 10, 64)
		if f.Form = first(f.Form, f.Name); f.Form == "-" {
			f.Form = ""
		}
		all = append(all, f)
	}
	return all
}

// partOf returns the i-th field of an input if its fields are those of the input: a part, or
// the body, which may be left out.
func partOf(v reflect.Value, i int) (part reflect.Value, ok bool) {
	field, part := v.Type().Field(i), v.Field(i)
	if !field.Anonymous && field.Name != "Body" {
		return part, false
	}
	if part.Kind() == reflect.Pointer && part.Type().Elem().Kind() == reflect.Struct {
		if part.IsNil() {
			part.Set(reflect.New(part.Type().Elem()))
		}
		part = part.Elem()
	}
	return part, part.Kind() == reflect.Struct
}

// Subjects returns the fields that name the thing of an operation: none for operations on
// all things, and two for a thing that is part of another.
func Subjects(in any) []Field {
	return slices.DeleteFunc(Fields(in), func(f Field) bool { return !f.Path })
}

// Forms returns the names that forms have for the fields of an input.
func Forms(in any) []string {
	var names []string
	for _, f := range Fields(in) {
		if f.Form != "" {
			names = append(names, f.Form)
		}
	}
	return names
}

// Fill sets the fields of an input to the values of a form; "" leaves a field as it is.
// readTime reads a time as the form has it.
func Fill(in any, value func(form string) string, readTime func(form string) (time.Time, error)) error {
	for _, f := range Fields(in) {
		if f.Form == "" || value(f.Form) == "" {
			continue
		}
		if t, ok := f.Value.Addr().Interface().(*time.Time); ok {
			var err error
			if *t, err = readTime(f.Form); err != nil {
				return err
			}
			continue
		}
		if err := f.Set(value(f.Form)); err != nil {
			return err
		}
	}
	return nil
}

// Set sets the field to a text, as an argument or a form has it. Commas separate the values
// of a list.
func (f Field) Set(text string) error {
	var err error
	switch p := f.Value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		*p = text == "true"
	case **bool:
		yes := text == "true"
		*p = &yes
	case *int64:
		*p, err = f.number(text)
		return err
	case *int:
		n, err := f.number(text)
		*p = int(n)
		return err
	case **int64: // 0 is not the same as none
		n, err := f.number(text)
		*p = &n
		return err
	case **float64:
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(n >= 0 && n <= math.MaxInt32) {
			return pg.Invalid(f.Name+" is not a number: "+text, "Give a number from 0 on.")
		}
		*p = &n
	case *[]int64:
		for number := range strings.SplitSeq(text, ",") {
			one := Field{Name: f.Name, Least: f.Least, Value: reflect.New(reflect.TypeFor[int64]()).Elem()}
			if err := one.Set(number); err != nil {
				return err
			}
			*p = append(*p, one.Value.Int())
		}
	case *[]string:
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				*p = append(*p, word)
			}
		}
	case *map[string]string:
		if err := json.Unmarshal([]byte(text), p); err != nil { // which is not quoted: it may have secrets
			return pg.Invalid("the "+f.Name+" are no JSON object of texts", `It looks like {"Authorization": "Bearer 7Zk"}.`)
		}
	case *map[string]json.RawMessage:
		if err := json.Unmarshal([]byte(text), p); err != nil {
			return pg.Invalid("the "+f.Name+" is no JSON object", `It looks like {"a": 1}.`)
		}
	case *json.RawMessage:
		var compact bytes.Buffer // without the line ends of a form
		if json.Compact(&compact, []byte(text)) != nil {
			return pg.Invalid("the "+f.Name+" is not valid JSON", "Correct it; nothing was done.")
		}
		*p = compact.Bytes()
	default: // numbers that may be left out, and parts of a body
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(p); err != nil || d.More() {
			return pg.Invalid("the "+f.Name+" cannot be read: "+text, "Give a number, or JSON as the HTTP API has it.")
		}
	}
	return nil
}

// number reads a whole number, from Least to Most.
func (f Field) number(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, pg.Invalid(f.Name+" is not a number: "+text, f.limits())
	}
	return n, f.within(n)
}

// within refuses a number outside of the limits.
func (f Field) within(n int64) error {
	if n < f.Least || f.Most > 0 && n > f.Most {
		return pg.Invalid(fmt.Sprintf("%s is out of range: %d", f.Name, n), f.limits())
	}
	return nil
}

func (f Field) limits() string {
	if f.Most > 0 {
		return fmt.Sprintf("Give a whole number from %d to %d.", f.Least, f.Most)
	}
	return fmt.Sprintf("Give a whole number from %d on.", f.Least)
}

// Text returns the value of the field as a query has it, "" if it is not set.
func (f Field) Text() string {
	if f.Value.IsZero() {
		return ""
	}
	switch v := reflect.Indirect(f.Value).Interface().(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case []string:
		return strings.Join(v, ",")
	case json.RawMessage:
		return string(v)
	case string:
		return v
	default:
		text, _ := json.Marshal(v) // numbers, and values that were read from JSON
		if _, list := v.([]int64); list {
			text = bytes.Trim(text, "[]")
		}
		return string(text)
	}
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
