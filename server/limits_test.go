package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// unlimited has the lists of requests that have no largest number of elements, and the reasons.
var unlimited = map[string]string{
	"settle-lease failures": "each names an event of the lease and a subscription",
	"settle-lease released": "each names an event of the lease",
}

type schemaNode struct {
	Ref        string `json:"$ref"`
	Type       any
	MaxItems   int
	Items      *schemaNode
	Properties map[string]*schemaNode
	OneOf      []*schemaNode
}

// Each list that a request may have is documented with a limit, or has a reason. Package op has
// the test that the limits of operations hold; those of other routes have tests of their own.
func TestListsOfRequestsAreLimited(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct {
				Name   string
				Schema *schemaNode
			}
			RequestBody struct {
				Content map[string]struct{ Schema *schemaNode }
			}
		}
		Components struct{ Schemas map[string]*schemaNode }
	}
	body := serve(t).call(t, "GET", "/openapi.json", nil).want(t, 200).body
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	lists, used := 0, map[string]bool{}
	var walk func(what string, s *schemaNode)
	walk = func(what string, s *schemaNode) {
		if s == nil {
			return
		}
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
			s = document.Components.Schemas[name]
		}
		if strings.Contains(fmt.Sprint(s.Type), "array") {
			lists++
			if used[what] = unlimited[what] != ""; s.MaxItems == 0 && !used[what] {
				t.Errorf("%s has no limit, and no reason for that", what)
			}
		}
		walk(what, s.Items)
		for _, one := range s.OneOf {
			walk(what, one)
		}
		for name, property := range s.Properties {
			walk(what+" "+name, property)
		}
	}
	for _, methods := range document.Paths {
		for _, o := range methods {
			for _, p := range o.Parameters {
				walk(o.OperationID+" "+p.Name, p.Schema)
			}
			for _, content := range o.RequestBody.Content {
				walk(o.OperationID, content.Schema)
			}
		}
	}
	if lists < 20 {
		t.Errorf("%d lists were found", lists)
	}
	for what := range unlimited {
		if !used[what] {
			t.Errorf("there is no list %s", what)
		}
	}
}

// The limits of lists whose routes are by hand hold.
func TestLongListsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	list := func(element string, n int) string {
		return "[" + strings.Join(slices.Repeat([]string{element}, n), ",") + "]"
	}
	s.call(t, "POST", "/v1/events", `{"type":"a","tags":`+list(`"a"`, 101)+`}`).wantProblem(t, 400, "can have up to 100 tags")
	s.call(t, "POST", "/v1/events", `{"type":"a","tags":`+list(`"a"`, 100)+`}`).want(t, 201)
	s.call(t, "POST", "/events", `{"title":"a","tags":"a","retry_delays":`+list("1", 1001)+`}`).wantProblem(t, 400, "up to 1000 periods")
	s.call(t, "GET", "/v1/events?type="+strings.Repeat("a,", 100)+"a", nil).wantProblem(t, 400, "100")
	s.call(t, "GET", "/events?tags="+strings.Repeat("a,", 100)+"a", nil).wantProblem(t, 400, "100")
}
