package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/posthorn/posthorn/op"
)

// addFlags adds the flags of an input, see op.Field.
func addFlags(flags *pflag.FlagSet, in any) {
	for _, f := range op.Fields(in) {
		if f.Flag == "" {
			continue
		}
		usage := usageOf(f)
		switch p := f.Value.Addr().Interface().(type) {
		case *string:
			if f.Enum == nil {
				flags.StringVar(p, f.Flag, "", usage)
				continue
			}
			flags.Var(&choice{p, f.Enum}, f.Flag, usage)
			if slices.Contains(f.Enum, "true") {
				flags.Lookup(f.Flag).NoOptDefVal = "true"
			}
		case *bool:
			flags.BoolVar(p, f.Flag, false, usage)
		case *int64:
			flags.Int64Var(p, f.Flag, 0, usage)
		case *[]int64:
			flags.Int64SliceVar(p, f.Flag, nil, usage)
		case *[]string:
			flags.StringArrayVar(p, f.Flag, nil, usage+"; may be repeated")
		case *time.Time:
			flags.Var((*momentValue)(p), f.Flag, usage)
		case *map[string]json.RawMessage:
			flags.Var(objectValue{f}, f.Flag, usage)
		case *json.RawMessage:
			flags.Var((*jsonValue)(p), f.Flag, usage)
		default:
			panic(fmt.Sprintf("--%s is a %s", f.Flag, f.Value.Type()))
		}
	}
}

// usageOf is the description of a flag: that of the field, in the style of other flags.
func usageOf(f op.Field) string {
	doc := strings.TrimPrefix(f.Doc, "true: ") // the flag without a value
	letter, size := utf8.DecodeRuneInString(doc)
	if next, _ := utf8.DecodeRuneInString(doc[size:]); !unicode.IsUpper(next) { // JSON stays
		doc = string(unicode.ToLower(letter)) + doc[size:]
	}
	if f.Enum != nil && !slices.Contains(f.Enum, "true") {
		doc += ": " + strings.ToLower(strings.Join(f.Enum[:len(f.Enum)-1], ", ")+" or "+f.Enum[len(f.Enum)-1])
	}
	return doc
}

// choice is one of some words, in letters of either case.
type choice struct {
	value *string
	words []string
}

func (c *choice) Set(text string) error {
	if text == "" {
		*c.value = ""
		return nil
	}
	for _, word := range c.words {
		if strings.EqualFold(word, text) {
			*c.value = word
			return nil
		}
	}
	return fmt.Errorf("it is one of %s", strings.ToLower(strings.Join(c.words, ", ")))
}

func (c *choice) String() string {
	if c.value == nil { // pflag calls it on a zero value
		return ""
	}
	return *c.value
}

func (*choice) Type() string { return "string" }

// momentValue is a time that has passed, see pastTime. The clock of this machine counts a
// time ago.
type momentValue time.Time

func (m *momentValue) Set(text string) error {
	t, err := pastTime(text, time.Now())
	*m = momentValue(t)
	return err
}

func (m *momentValue) String() string { return formatTime(time.Time(*m)) }
func (*momentValue) Type() string     { return "TIME" }

// objectValue is a JSON object.
type objectValue struct{ op.Field }

func (o objectValue) String() string {
	if !o.Value.IsValid() { // pflag calls it on a zero value
		return ""
	}
	return o.Text()
}

func (objectValue) Type() string { return "JSON" }

type jsonValue json.RawMessage

func (j *jsonValue) Set(text string) error {
	if !json.Valid([]byte(text)) {
		return errors.New("it is not valid JSON")
	}
	*j = jsonValue(text)
	return nil
}

func (j *jsonValue) String() string { return string(*j) }
func (*jsonValue) Type() string     { return "JSON" }
