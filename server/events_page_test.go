package server

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestPageEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/events").wantPage(t, 200, "No event was published yet.")
	s.exec(t, `select posthorn.publish('default', $1, json_build_object('text', $1::text), key => $1, tags => array[$1], stream => $1)`, evilName)
	ids := posthorntest.Publish(t, s.ph, posthorn.Message{Type: "order.placed", Key: "7", Payload: map[string]int{"order": 7}, Tags: []string{"a", "b"}},
		posthorn.Message{Type: "order.paid", Key: "7", Stream: "orders", Payload: map[string]int{"order": 7}}, posthorn.Message{Type: "mail.sent", Payload: map[string]int{"order": 8}})
	b.get("/ui/default/events").wantPage(t, 200, `id="events"`, "new events come to the list").wantHarmless(t)
	for filter, wanted := range map[string][]int64{
		"type=order.*": ids[:2], "type=mail.sent,order.paid": ids[1:], "key=7": ids[:2], "stream=orders": {ids[1]}, "tag=a,b": {ids[0]},
		"payload=" + url.QueryEscape(`{"order": 8}`): {ids[2]}, "from=2000-01-01&type=mail.*": {ids[2]}, "before=2000-01-01": nil,
	} {
		page := b.get("/ui/default/events?"+filter).wantPage(t, 200)
		for _, id := range ids {
			found, want := strings.Contains(page.body, fmt.Sprintf(`data-key="%d"`, id)), false
			for _, w := range wanted {
				want = want || w == id
			}
			if found != want {
				t.Errorf("%s: event %d is shown: %v", filter, id, found)
			}
		}
	}
	b.get("/ui/default/events?payload=x").wantPage(t, 400, "not valid JSON", `name="payload" value="x"`)
	b.get("/ui/default/events?after=x").wantPage(t, 400, "after is not a number")
}

// A list of events goes on behind the last one, and says when it has to look far.
func TestPageEventsPaging(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.publish('default', 'rare')")
	s.exec(t, "select posthorn.publish('default', 'e') from generate_series(1, 119)")
	seen := map[string]bool{}
	path := "/ui/default/events?type=e"
	for range 3 {
		page := b.get(path).wantPage(t, 200)
		for _, id := range dataKey.FindAllString(page.body, -1) {
			if seen[id] {
				t.Errorf("%s twice", id)
			}
			seen[id] = true
		}
		if next := nextLink.FindStringSubmatch(page.body); next != nil {
			path = strings.ReplaceAll(next[1], "&amp;", "&")
		}
	}
	if len(seen) != 119 {
		t.Errorf("%d of 119 events were shown", len(seen))
	}
	b.get("/ui/default/events?type=rare").wantPage(t, 200, `data-key="1"`)
}

func TestPageEvent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	long := strings.Repeat("x", 1<<20-100)
	s.exec(t, "select posthorn.define_group('default', 'well')")
	s.exec(t, `select posthorn.define_group('default', $1, '{"attempts": 3, "delays": ["0 seconds"]}')`, evilName)
	s.exec(t, `select posthorn.publish('default', 'e', json_build_object('text', $1::text, 'evil', $2::text), key => 'k', tags => array[$2],
		metadata => json_build_object('traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'note', $2::text))`, long, evilName)
	for range 2 {
		s.exec(t, `select posthorn.settle(lease, attempt, json_build_array(json_build_object('event', event_id, 'error', $2::text))::jsonb) from posthorn.claim('default', $1, 'w1')`, evilName, evil)
	}
	page := b.get("/ui/default/event?id=1").wantPage(t, 200, "RETRYING", "PENDING", "attempt 1 failed on", "attempt 2 failed on", "show all 1,048,", "0af7651916cd43dd8448eb211c80319c", "Publish one like this").wantHarmless(t)
	if n := len(page.body); n > 5<<20 {
		t.Errorf("the page has %d bytes", n)
	}
	if list := b.get("/ui/default/events").wantPage(t, 200); len(list.body) > 100<<10 {
		t.Errorf("the list has %d bytes", len(list.body))
	}
	b.get("/ui/default/event?id=4711").wantPage(t, 404, "4711")
	b.get("/ui/default/event").wantPage(t, 400, "id is not a number")
	b.get("/ui/default/find?q=1").wantPage(t, 200, `href="/ui/default/event?id=1"`)
	b.get("/ui/default/find?q="+url.QueryEscape("script")).wantPage(t, 200, "/ui/default/group?name=").wantHarmless(t)
}

// The search box finds jobs by their titles: one leads to the job, several to the list. Those of which the text is the whole title
// are first.
func TestPageFindsTitles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, "select posthorn.enqueue('default', 'o-15', '{\"order\": \"o-15\"}'), posthorn.enqueue('default', 'ship order o-151'), posthorn.enqueue('default', 'mail')")
	several := b.get("/ui/default/find?q=o-15").wantPage(t, 200, `href="/ui/default/jobs?title=o-15"`, "all with it in their title")
	whole, part := strings.Index(several.body, `href="/ui/default/job?id=1"`), strings.Index(several.body, `href="/ui/default/job?id=2"`)
	if whole < 0 || part < whole {
		t.Errorf("job 1 is at %d, job 2 at %d:\n%s", whole, part, several.body)
	}
	equal(t, "hits of the job that has it in its payload too", strings.Count(several.body, `href="/ui/default/job?id=1"`), 1)
	b.get("/ui/default/find?q=ORDER+O-151").wantPage(t, 200, "<h1>Job 2 ·")
	b.get("/ui/default/find?q=o-16").wantPage(t, 200, "none of the newest jobs has it in its title or payload")
}

// Publish one like this: a copy of an event, changed.
func TestPagePublish(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.exec(t, `select posthorn.publish('default', 'order.placed', '{"order": 7.000}', key => 'k', tags => '{a,b}', stream => 'orders', metadata => '{"producer": "me", "note": 1}')`)
	form := b.get("/ui/default/event/publish?like=1").wantPage(t, 200, `value="order.placed"`, `value="a, b"`, "7.000", "note")
	form.wantNone(t, "producer")
	fields := url.Values{"type": {"order.placed"}, "stream": {"orders"}, "key": {"k"}, "tags": {"a, c"}, "payload": {`{"order": 8.000}`}, "metadata": {`{"note": 2}`}}
	b.post(form, "/ui/default/event/publish", fields).wantPage(t, 200, "Published.", "8.000", "Event 2")
	fields.Set("payload", "{")
	b.post(form, "/ui/default/event/publish", fields).wantPage(t, 400, "the payload is not valid JSON")
	fields.Set("payload", "{}")
	fields.Set("metadata", "[]")
	b.post(form, "/ui/default/event/publish", fields).wantPage(t, 400)
	b.get("/ui/default/audit").wantPage(t, 200, "publish-events", "order.placed")
	b.get("/ui/default/event/publish").wantPage(t, 200, `id="type"`)
	e, err := s.ph.Admin().Event(t.Context(), 2)
	if err != nil || e.Key != "k" || strings.Join(e.Tags, " ") != "a c" || e.Stream != "orders" {
		t.Errorf("published %+v, %v", e, err)
	}
}

// Events of streams that the token does not name do not exist for it.
func TestPageHiddenEvents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'secret', 'restricted')")
	s.exec(t, "select posthorn.publish('default', 'concealed', stream => 'secret')")
	b := s.visit(t)
	b.signIn(s.token(t, "read", "publish"))
	s.forget()
	b.get("/ui/default/events").wantPage(t, 200).wantNone(t, "concealed")
	b.get("/ui/default/event?id=1").wantPage(t, 404).wantNone(t, "concealed")
	form := b.get("/ui/default/event/publish").wantPage(t, 200)
	b.get("/ui/default/event/publish?like=1").wantPage(t, 404).wantNone(t, "concealed")
	b.post(form, "/ui/default/event/publish", url.Values{"type": {"e"}, "stream": {"secret"}}).wantPage(t, 403, "does not name the restricted stream")
}
