package server

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"
)

// A cursor of a list that the first version gave leads to the next page.
func TestListsOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../internal/test/testserver/cursors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cursors []struct {
			Path, Cursor, Field string
			Then                []any // the fields of the items behind it
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	s.exec(t, `select posthorn.define_group('default', 'billing', '{"start": "beginning"}')`)
	for _, stream := range []string{"a", "b", "c"} {
		s.exec(t, "select posthorn.publish('default', 'order.placed', stream => $1)", stream)
	}
	s.exec(t, `select posthorn.settle(lease, attempt, jsonb_agg(jsonb_build_object('event', event_id, 'error', 'no', 'permanent', true)))
		from posthorn.claim('default', 'billing', 'w') group by lease, attempt`)
	s.call(t, "POST", "/v1/webhooks", `{"name":"crm","url":"https://crm.example/"}`).want(t, 201)
	s.exec(t, `insert into posthorn.webhook_attempts (event_id, webhook_id, attempt, duration_ms, status, outcome, request_id)
		select n, w.id, 1, 20, 200, 'delivered', 'msg_' || n from posthorn.webhooks w, generate_series(1, 3) n order by n`)
	for _, c := range file.Cursors {
		separator := "?"
		if strings.Contains(c.Path, "?") {
			separator = "&"
		}
		var found list[map[string]any]
		s.call(t, "GET", c.Path+separator+"cursor="+url.QueryEscape(c.Cursor), nil).want(t, 200, &found)
		var got []any
		for _, item := range found.Items {
			got = append(got, item[c.Field])
		}
		equal(t, c.Path, got, c.Then)
	}
}
