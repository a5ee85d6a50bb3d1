package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/op"
	pages "github.com/posthorn/posthorn/server/page"
)

// Each operation has its route with its scope and its texts, or a reason. Each route of a
// topic of package op is one of its operations.
func TestOperationsHaveRoutes(t *testing.T) {
	t.Parallel()
	routes := operations(serve(t).server)
	known, topics := map[string]bool{}, map[string]bool{}
	for _, o := range op.All() {
		d := o.Describe()
		topics[d.Topic.Many] = true
		route := d.Method + " " + d.Path
		found := routes[route]
		if reason := d.Without[op.HTTP]; reason != "" || found == nil {
			if (found == nil) == (reason == "") {
				t.Errorf("%s: the route is %v, and the reason %q", d.Name, found, reason)
			}
			continue
		}
		known[route] = true
		if found.OperationID != d.Name || found.Extensions["x-scope"] != string(d.Scope) || found.Summary != d.Does || found.Description != d.More {
			t.Errorf("%s: %s is %s with scope %v: %s. %s", d.Name, route, found.OperationID, found.Extensions["x-scope"], found.Summary, found.Description)
		}
	}
	for route, o := range routes {
		if topics[o.Tags[0]] && !known[route] && protocols[o.OperationID] == "" {
			t.Errorf("%s is no operation of package op", route)
		}
	}
}

// protocols are routes of topics of package op that are no operations, and why.
var protocols = map[string]string{
	"claim-events": "it waits for events, and returns a lease", "extend-lease": leaseProtocol, "release-lease": leaseProtocol, "settle-lease": leaseProtocol,
	"publish-events": "it publishes one event or many, and CloudEvents", "stream-events": "it is a stream",
	"claim-job": "it waits for jobs, and returns one", "start-job": jobProtocol, "heartbeat-job": jobProtocol,
	"complete-job": jobProtocol, "fail-job": jobProtocol, "snooze-job": jobProtocol,
	"save-job-step": jobProtocol, "sleep-job": jobProtocol, "await-event": jobProtocol,
}

const (
	leaseProtocol = "it is about a lease that a worker holds"
	jobProtocol   = "it is about a job that a worker has"
)

// byAnother are actions of topics of package op that are operations of another topic.
var byAnother = map[string]string{
	"relay/pause":  "a relay is a group: pause-group",
	"relay/resume": "resume-group",
}

// Each operation is on the page, or has a reason. Each action of a topic of package op is one
// of its operations, with a button or a link.
func TestOperationsAreOnThePage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	screens, actions := map[string]pages.Screen{}, map[string]pages.Action{}
	for _, screen := range s.server.pages.Screens() {
		screens[screen.Path] = screen
	}
	for _, action := range s.server.pages.Actions() {
		actions[action.Path] = action
	}
	templates := templatesOfPages(t)
	known, topics := map[string]bool{}, map[string]bool{}
	for _, o := range op.All() {
		d := o.Describe()
		topics[strings.ReplaceAll(d.Topic.One, " ", "-")], topics[d.Topic.Slug()] = true, true
		screen, shown := screens[d.Page]
		action, made := actions[d.Page]
		found := shown && screen.Scope == string(d.Scope)
		if o.Changes() {
			found = made && action.Scope == string(d.Scope) && shown == (o.Asks() || len(op.Forms(o.New())) > 1)
			if made && !strings.Contains(templates, `"`+d.Page+`"`) {
				t.Errorf("%s: no page has a button for %s", d.Name, d.Page)
			}
		}
		if reason := d.Without[op.Page]; found == (reason != "") {
			t.Errorf("%s: on the page at %s: %v; the reason is %q", d.Name, d.Page, found, reason)
		}
		known[d.Page] = true
	}
	for path := range actions {
		topic, _, _ := strings.Cut(path, "/")
		if topics[topic] && !known[path] && byAnother[path] == "" {
			t.Errorf("the action %s is no operation of package op", path)
		}
	}
	for path := range byAnother {
		if _, ok := actions[path]; !ok || known[path] {
			t.Errorf("there is no action %s, or it is an operation", path)
		}
	}
}

func templatesOfPages(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("page/*.html")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
