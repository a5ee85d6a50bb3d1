package op_test

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testgolden"
	"github.com/posthorn/posthorn/op"
)

//go:generate go test -run ^Test(Reference|Tools)$ . -update

func TestReference(t *testing.T) {
	t.Parallel()
	testgolden.Check(t, "../docs/reference.md", op.Reference())
}

func TestTools(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(op.Tools(), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	testgolden.Check(t, "../docs/tools.json", string(text)+"\n")
}

// A tool needs the fields that the HTTP API needs, and has no others, but for routes by hand.
func TestToolsHaveTheInputsOfTheAPI(t *testing.T) {
	t.Parallel()
	type schema struct {
		Ref        string `json:"$ref"`
		Properties map[string]json.RawMessage
		Required   []string
	}
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			}
			RequestBody struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	text, err := os.ReadFile("../internal/test/testserver/openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	compared, operations := 0, op.All()
	for i, tool := range op.Tools() {
		method, path, routed := strings.Cut(tool.Call, " ")
		if _, byHand := operations[i].Describe().ByHand[op.HTTP]; byHand || !routed {
			continue
		}
		route, ok := document.Paths[path][strings.ToLower(method)]
		if !ok {
			t.Errorf("%s: the API has no %s", tool.Name, tool.Call)
			continue
		}
		body := route.RequestBody.Content["application/json"].Schema
		if name := body.Ref[strings.LastIndex(body.Ref, "/")+1:]; name != "" {
			body = document.Components.Schemas[name]
		}
		fields, needed := slices.Collect(maps.Keys(body.Properties)), body.Required
		for _, p := range route.Parameters {
			if p.In == "header" || p.Name == "namespace" {
				continue
			}
			fields = append(fields, p.Name)
			if p.Required {
				needed = append(needed, p.Name)
			}
		}
		fields = slices.DeleteFunc(fields, func(f string) bool { return f == "$schema" })
		slices.Sort(fields)
		slices.Sort(needed)
		if got := slices.Sorted(maps.Keys(tool.Input.Properties)); !slices.Equal(got, fields) {
			t.Errorf("%s has the fields %v, and its route %v", tool.Name, got, fields)
		}
		if got := slices.Sorted(slices.Values(tool.Input.Required)); !slices.Equal(got, needed) {
			t.Errorf("%s needs %v, and its route %v", tool.Name, got, needed)
		}
		compared++
	}
	if compared == 0 {
		t.Error("no tool was compared")
	}
}

// recordedAs has the names in the audit log of operations that have another one there.
var recordedAs = map[string]string{ // one dead letter is recorded as many are
	"redrive-dead-letter": "redrive-dead-letters", "discard-dead-letter": "discard-dead-letters",
	"recover-dead-letter": "recover-dead-letters", "purge-dead-letter": "purge-dead-letters",
}

// Each operation has all its texts, a method in Go, a function, a view or a table in SQL, and its
// name in the audit log.
func TestOperationsAreWhole(t *testing.T) {
	t.Parallel()
	sql, source := texts(t, "../schema", ".sql"), texts(t, "../admin", ".go")
	known := map[string]bool{}
	for _, o := range op.All() {
		d := o.Describe()
		if known[d.Name] {
			t.Errorf("%s is there twice", d.Name)
		}
		known[d.Name] = true
		if d.Does == "" || strings.HasSuffix(d.Does, ".") || !strings.HasSuffix(d.More, ".") {
			t.Errorf("%s: Does is one line without a full stop, and More has sentences: %q, %q", d.Name, d.Does, d.More)
		}
		if d.Scope != op.Read != o.Changes() && d.Name != "list-tokens" { // whose readers learn who may do what
			t.Errorf("%s: what changes something has a sentence afterwards, and needs more than %s", d.Name, d.Scope)
		}
		if _, ok := reflect.TypeFor[*admin.Admin]().MethodByName(d.Go); !ok {
			t.Errorf("%s: there is no method Admin.%s", d.Name, d.Go)
		}
		if !regexp.MustCompile(`(function|view|table) posthorn\.` + d.SQL + `\b`).MatchString(sql) {
			t.Errorf("%s: there is no posthorn.%s", d.Name, d.SQL)
		}
		recorded := cmp.Or(recordedAs[d.Name], d.Name)
		if _, elsewhere := d.Without[op.HTTP]; o.Changes() && !elsewhere && !strings.Contains(source, `entry{"`+recorded+`"`) {
			t.Errorf("%s: package admin records it under another name", d.Name)
		}
		for _, f := range op.Fields(o.New()) {
			if f.Doc == "" {
				t.Errorf("%s: %s does not say what it means", d.Name, f.Name)
			}
		}
	}
}

// Reasons are given for what is missing or by hand, and not for both.
func TestReasonsAreReasons(t *testing.T) {
	t.Parallel()
	for _, o := range op.All() {
		d := o.Describe()
		for _, face := range []op.Face{op.HTTP, op.Command, op.Page} {
			without, missing := d.Without[face]
			byHand, written := d.ByHand[face]
			if missing && without == "" || written && byHand == "" || missing && written {
				t.Errorf("%s, %s: without %q, by hand %q", d.Name, face, without, byHand)
			}
		}
	}
}

func texts(t *testing.T, dir, ext string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ext) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// Each operation that is written is in the list.
func TestOperationsAreInAll(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("all.go")
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`(?m)^var ([A-Z]\w+) = (?:Op\[|DeadLetterAction|JobAction|onNamed|getNamed|listAll|asking)`)
	found := written.FindAllStringSubmatch(texts(t, ".", ".go"), -1)
	if len(found) < 50 {
		t.Fatalf("%d operations were found", len(found))
	}
	for _, o := range found {
		if !regexp.MustCompile(`\b` + o[1] + `\b`).Match(list) {
			t.Errorf("%s is not in All", o[1])
		}
	}
}
