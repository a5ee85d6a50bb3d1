package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testgolden"
)

//go:generate go test -run ^TestOpenAPIChangesByAdditions$ . -update

// The document changes by additions only: programs are generated from it. Any other change
// stands in CHANGELOG.md.
func TestOpenAPIChangesByAdditions(t *testing.T) {
	t.Parallel()
	body := serve(t, Options{Version: "VERSION"}).call(t, "GET", "/openapi.json", nil).want(t, 200).body
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(body), "", " "); err != nil {
		t.Fatal(err)
	}
	testgolden.Check(t, "../internal/test/testserver/openapi.json", indented.String()+"\n")
}

// The document has all that linters and generators require: servers, described tags,
// descriptions, unique operation ids, security and errors of every operation, and no unused
// component.
func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	type named struct{ Name, Description string }
	var document struct {
		Info struct {
			License struct{ Name, Identifier string }
		}
		Servers []struct{ URL string }
		Tags    []named
		Paths   map[string]map[string]struct {
			OperationID, Summary, Description string
			Tags                              []string
			Security                          []map[string][]string
			Parameters                        []struct {
				named
				In string
			}
			Responses map[string]json.RawMessage
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	body := serve(t).call(t, "GET", "/openapi.json", nil).want(t, 200, &document).body
	if len(document.Servers) == 0 || document.Info.License.Identifier == "" {
		t.Errorf("servers %v, license %v", document.Servers, document.Info.License)
	}
	unused := map[string]bool{}
	for _, tag := range document.Tags {
		unused[tag.Name] = true
		if tag.Description == "" {
			t.Errorf("tag %s has no description", tag.Name)
		}
	}
	known, ids := len(unused), map[string]bool{}
	used := map[string]bool{}
	for path, operations := range document.Paths {
		for method, o := range operations {
			switch {
			case o.OperationID == "" || ids[o.OperationID]:
				t.Errorf("%s %s: the operation id %q is missing or taken", method, path, o.OperationID)
			case o.Summary == "" || o.Description == "":
				t.Errorf("%s has no summary or description", o.OperationID)
			case o.Security == nil:
				t.Errorf("%s does not say what security it needs", o.OperationID)
			case o.Responses["4XX"] == nil || o.Responses["default"] == nil:
				t.Errorf("%s does not say how it fails", o.OperationID)
			}
			ids[o.OperationID] = true
			for _, tag := range o.Tags {
				used[tag] = true
				delete(unused, tag)
			}
			for _, p := range o.Parameters {
				if p.In == "path" && p.Description == "" {
					t.Errorf("%s: the parameter %s has no description", o.OperationID, p.Name)
				}
			}
		}
	}
	if len(unused) > 0 || len(used) != known {
		t.Errorf("operations have %d tags of %d; unused: %v", len(used), known, unused)
	}
	for name := range document.Components.Schemas {
		if !strings.Contains(body, `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
}
