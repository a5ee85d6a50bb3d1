package server

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
)

// bury makes dead letters of a group, which must exist: n events of type and key evil,
// which fail with an error.
func (s *served) bury(t testing.TB, group string, n int, failure string) {
	t.Helper()
	s.exec(t, `select posthorn.define_group('default', $1, '{"start": "beginning"}')`, group)
	s.exec(t, `select posthorn.publish('default', $2, json_build_object('text', $2::text), key => 'k') from generate_series(1, $1)`, n, strings.ReplaceAll(evil, "\u0007", ""))
	s.exec(t, `with c as (select * from posthorn.claim('default', $1, 'w', 10000))
		select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'permanent', true, 'error', $2::text, 'stack', $2::text))::jsonb)
		from c group by lease, attempt`, group, failure)
}

func (s *served) countDead(t testing.TB, discarded bool) int64 {
	t.Helper()
	n, err := s.ph.Admin().CountDeadLetters(t.Context(), admin.DeadLetterFilter{Discarded: discarded})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPageDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	b.get("/ui/default/dead-letters").wantPage(t, 200, "There are no dead letters.")
	s.bury(t, evilName, 3, evil)
	page := b.get("/ui/default/dead-letters").wantPage(t, 200, `id="reasons"`, `id="dead-letters"`, "Handler error", "Redrive all that match").wantHarmless(t)
	letters, _, err := s.ph.Admin().NewestDeadLetters(t.Context(), admin.DeadLetterFilter{Limit: 10})
	if err != nil || len(letters) != 3 {
		t.Fatal(letters, err)
	}
	id := fmt.Sprint(letters[0].ID)
	if first, last := strings.Index(page.body, `data-key="`+id+`"`), strings.Index(page.body, fmt.Sprintf(`data-key="%d"`, letters[2].ID)); first < 0 || last < first {
		t.Errorf("the newest does not come first: %d, %d", first, last)
	}
	b.get("/ui/default/dead-letters?error=nothing").wantPage(t, 200, "No dead letter matches.")
	b.get("/ui/default/dead-letters?key=k&group="+url.QueryEscape(evilName)).wantPage(t, 200, `data-key="`+id+`"`)
	b.get("/ui/default/dead-letters?from=2000-01-01T00:00&before=2000-01-02").wantPage(t, 200, "No dead letter matches.")
	b.get("/ui/default/dead-letters?from=yesterday").wantPage(t, 400, "from is no time: yesterday")
	b.get("/ui/default/dead-letter?id=4711").wantPage(t, 404, "there is no dead letter 4711")

	one := b.get("/ui/default/dead-letter?id="+id).wantPage(t, 200, `id="error"`, `id="payload"`, "attempt 1 failed on", `data-action="dead-letter/redrive"`).wantHarmless(t)
	after := b.post(one, "/ui/default/dead-letter/discard", url.Values{"id": {id}}).wantPage(t, 200, "is discarded.")
	after.wantNone(t, `data-key="`+id+`"`)
	b.get("/ui/default/dead-letters?discarded=true").wantPage(t, 200, `data-key="`+id+`"`, "by <bdi>anyone</bdi>", "Recover all that match")
	b.get("/ui/default/dead-letter?id="+id).wantPage(t, 200, ">Recover</button>", "discarded")
	b.post(one, "/ui/default/dead-letter/recover", url.Values{"id": {id}}).wantPage(t, 200, "is recovered.", ">Redrive</button>")
	b.post(one, "/ui/default/dead-letter/redrive", url.Values{"id": {id}}).wantPage(t, 200, "is handed out again.")
	if n := s.countDead(t, false); n != 2 {
		t.Errorf("%d dead letters are left", n)
	}
	b.get("/ui/default/audit").wantPage(t, 200, "discard-dead-letters", "recover-dead-letters", "redrive-dead-letters")
}

// The page deletes dead letters for good only after they were discarded, and asks before.
func TestPagePurgeDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "g", 3, "no")
	s.exec(t, `select posthorn.discard('default', 'g', '{"ids": [1, 2]}')`)
	b.get("/ui/default/dead-letters").wantPage(t, 200).wantNone(t, "dead-letters/purge")
	b.get("/ui/default/dead-letter?id=3").wantPage(t, 200).wantNone(t, "dead-letter/purge")
	b.get("/ui/default/dead-letters?discarded=true").wantPage(t, 200, `data-action="dead-letters/purge"`)
	b.get("/ui/default/dead-letter?id=1").wantPage(t, 200, `data-action="dead-letter/purge"`)
	asked := b.get("/ui/default/dead-letter/purge?id=1").wantPage(t, 200, "Delete dead letter 1, of event 1 in group g, for good?", "Nothing brings it back.")
	b.post(asked, "/ui/default/dead-letter/purge", url.Values{"id": {"1"}}).wantPage(t, 200, "Dead letter 1 is deleted for good.", "Discarded dead letters")
	asked = b.get("/ui/default/dead-letters/purge?group=g").wantPage(t, 200, "Purge 1 dead letter?", "dead-letters?discarded=true")
	b.post(asked, "/ui/default/dead-letters/purge", url.Values{"group": {"g"}, "last": {asked.hidden(t, "last")}, "expected": {"1"}}).wantPage(t, 200, `id="progress"`)
	await.True(t, "the action ends", func() bool { return s.countDead(t, true) == 0 })
	if n := s.countDead(t, false); n != 1 {
		t.Errorf("%d dead letters that are not discarded are left", n)
	}
}

// A server that stops waits for the part of an action that runs, and records that the action
// has ended early.
func TestActionEndsWithItsServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "g", 1001, "no")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, listener, nil) }()
	blocking, err := s.ph.Pool().Begin(t.Context())
	if err == nil {
		_, err = blocking.Exec(t.Context(), "lock table posthorn.retries in exclusive mode")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Rollback(t.Context())
	asked := b.get("/ui/default/dead-letters/redrive?group=g").wantPage(t, 200, `id="confirm"`)
	redrive := func() answered {
		return b.post(asked, "/ui/default/dead-letters/redrive", url.Values{"group": {"g"}, "last": {asked.hidden(t, "last")}, "expected": {"1001"}})
	}
	redrive().wantPage(t, 200)
	await.True(t, "the first part waits", func() bool { return s.isBlocked(t, blocking) })
	stop()
	await.True(t, "the server stops", s.server.isDraining)
	redrive().wantPage(t, 503, "the server stopped")
	if err := blocking.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await.Value(t, "the end of Serve", ended); err != nil {
		t.Error(err)
	}
	actions, err := s.ph.Admin().Actions(t.Context(), 0, 1)
	if err != nil || len(actions) != 1 {
		t.Fatal(actions, err)
	}
	if a := actions[0]; a.EndedAt.IsZero() || a.Done != 1000 || a.Error != "the server stopped. Make the action again: it goes on with what is left." {
		t.Errorf("it is recorded as %+v", a)
	}
}

// evilName is as evil as a name can be.
var evilName = strings.ReplaceAll(evil, "\u0007", "")

// A dead letter can be redriven with another payload.
func TestPageEditDeadLetter(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "g", 1, "no")
	letters, _, err := s.ph.Admin().NewestDeadLetters(t.Context(), admin.DeadLetterFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(letters[0].ID)
	page := b.get("/ui/default/dead-letter/edit?id="+id).wantPage(t, 200, `<textarea id="payload"`).wantHarmless(t)
	b.post(page, "/ui/default/dead-letter/edit", url.Values{"id": {id}, "payload": {"{"}}).wantPage(t, 400, "not valid JSON")
	b.post(page, "/ui/default/dead-letter/edit", url.Values{"id": {id}, "payload": {"{\r\n\"fixed\": 1.000}"}}).wantPage(t, 200, "The edited event is handed out.", `<h1>Event 2`)
	var payload json.RawMessage
	if err := s.ph.Pool().QueryRow(t.Context(), "select payload from posthorn.claim('default', 'g', 'w')").Scan(&payload); err != nil || string(payload) != `{"fixed":1.000}` {
		t.Errorf("the payload is %s, %v", payload, err)
	}
	b.get("/ui/default/dead-letter?id="+id).wantPage(t, 200, "redriven with another payload, as event")
	b.get("/ui/default/audit").wantPage(t, 200, "redrive-edited-dead-letter")
}

var questionOf = regexp.MustCompile(`<h1 id="question"><bdi>([^<]*)</bdi>`)

// An action on all that match touches as many as it has asked for: none that came later,
// and none that does not match; and its progress can be seen to the end.
func TestPageRedriveAllThatMatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "g", 2500, "bank is closed")
	s.bury(t, "h", 3, "bank is closed")
	s.bury(t, "g", 1, "no such card")
	b.get("/ui/default/dead-letters/redrive?error=nothing").wantPage(t, 200, "There is nothing to do.")
	asked := b.get("/ui/default/dead-letters/redrive?group=g&error=bank").wantPage(t, 200, "bank", `id="confirm"`)
	if found := questionOf.FindStringSubmatch(asked.body); found == nil || found[1] != "Redrive 2,500 dead letters?" {
		t.Errorf("the question is %q", found)
	}
	s.bury(t, "g", 1, "bank is closed") // after the question
	before := s.countDead(t, false)
	begun := b.post(asked, "/ui/default/dead-letters/redrive", url.Values{
		"group": {"g"}, "error": {"bank"}, "last": {asked.hidden(t, "last")}, "expected": {asked.hidden(t, "expected")},
	}).wantPage(t, 200, `id="progress"`)
	action := regexp.MustCompile(`/ui/default/action\?id=\d+`).FindString(begun.body)
	if action == "" { // the page of the action itself
		actions, err := s.ph.Admin().Actions(t.Context(), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		action = fmt.Sprintf("/ui/default/action?id=%d", actions[0].ID)
	}
	await.True(t, "the action ends", func() bool {
		return strings.Contains(b.get(action).wantPage(t, 200).body, `data-state="ended"`)
	})
	b.get(action).wantPage(t, 200, "2,500 of 2,500", "redrive-dead-letters", "bank").wantNone(t, "ended early")
	if n := s.countDead(t, false); n != before-2500 {
		t.Errorf("%d dead letters are left of %d", n, before)
	}
	if n, err := s.ph.Admin().CountDeadLetters(t.Context(), admin.DeadLetterFilter{Group: "g", Error: "bank"}); err != nil || n != 1 {
		t.Errorf("%d that match are left, %v", n, err)
	}
	actions, err := s.ph.Admin().Actions(t.Context(), 0, 10)
	if err != nil || len(actions) != 1 || actions[0].Done != 2500 || actions[0].Subject != "g" {
		t.Errorf("the audit log is %+v, %v", actions, err)
	}
}

// Dead letters of streams that the token does not name are not shown, not counted and
// not touched.
func TestPageHiddenDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.set_stream_policy('default', 'secret', 'restricted')")
	s.exec(t, `select posthorn.define_group('default', 'g', '{"start": "beginning"}')`)
	s.exec(t, `select posthorn.publish('default', 'seen'), posthorn.publish('default', 'concealed', stream => 'secret')`)
	s.exec(t, `with c as (select * from posthorn.claim('default', 'g', 'w'))
		select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'permanent', true, 'error', 'about ' || type))::jsonb) from c group by lease, attempt`)
	letters, _, err := s.ph.Admin().NewestDeadLetters(t.Context(), admin.DeadLetterFilter{Limit: 10, Type: "concealed"})
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	b := s.visit(t)
	b.signIn(s.token(t, "read", "admin"))
	s.forget()
	for _, path := range []string{"/", "/ui/default/dead-letters", "/ui/default/dead-letters?group=g"} {
		b.get(path).wantPage(t, 200, "about seen").wantNone(t, "concealed")
	}
	id := fmt.Sprint(letters[0].ID)
	page := b.get("/ui/default/dead-letters/discard?group=g").wantPage(t, 200, "Discard 1 dead letter?")
	b.get("/ui/default/dead-letter?id="+id).wantPage(t, 404).wantNone(t, "concealed")
	b.get("/ui/default/find?q="+id).wantPage(t, 200).wantNone(t, "concealed")
	b.post(page, "/ui/default/dead-letter/discard", url.Values{"id": {id}}).wantPage(t, 404)
	b.post(page, "/ui/default/dead-letter/edit", url.Values{"id": {id}, "payload": {"{}"}}).wantPage(t, 404)
	if n := s.countDead(t, false); n != 2 {
		t.Errorf("%d dead letters are left", n)
	}
}

// A row of the list by handler and error has one cause, and its buttons take exactly what
// it counts.
func TestPageDeadLettersByCause(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "billing", 2, `no such order "A-1"`)
	s.bury(t, "billing", 3, `no such order "B-22"`)
	s.bury(t, "billing", 4, "timeout after 5 s")
	s.exec(t, "update posthorn.dead_letters set subscription = 'mail' where id = 1")
	page := b.get("/ui/default/dead-letters").want(t, 200)
	rows := regexp.MustCompile(`(?s)<tr data-key="&#34;billing.*?</tr>`).FindAllString(page.body, -1)
	var asked []string
	for _, row := range rows {
		for _, action := range []string{"redrive", "discard"} {
			link := regexp.MustCompile(`data-action="dead-letters/` + action + `" href="([^"]*)"`).FindStringSubmatch(row)
			if link == nil {
				t.Fatalf("there is no button to %s in %s", action, row)
			}
			question := b.get(html.UnescapeString(link[1])).want(t, 200)
			asked = append(asked, regexp.MustCompile(`\w+ [0-9]+ dead letters?\?`).FindString(question.body))
		}
	}
	if got, want := strings.Join(asked, " "), "Redrive 4 dead letters? Discard 4 dead letters? Redrive 4 dead letters? Discard 4 dead letters? Redrive 1 dead letter? Discard 1 dead letter?"; got != want {
		t.Errorf("asked %s; want %s", got, want)
	}
}

// A list that leaves out kinds of dead letters says so.
func TestPageManyCausesOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := s.visit(t)
	s.bury(t, "billing", 51, "broken")
	s.exec(t, "update posthorn.dead_letters set error = 'broken ' || translate(id::text, '0123456789', 'abcdefghij')")
	pages := []string{"/ui/default/dead-letters", "/ui/default/dead-letters?group=billing", "/ui/default/group?name=billing"}
	for _, page := range pages {
		b.get(page).wantPage(t, 200, "There are more errors, which came last before these 50")
	}
	b.get("/ui/default/").wantPage(t, 200, "45 other dead letters or more")
	s.exec(t, "delete from posthorn.dead_letters where id = 1")
	for _, page := range pages {
		if body := b.get(page).want(t, 200).body; strings.Contains(body, "There are more errors") {
			t.Errorf("%s says that there are more", page)
		}
	}
}
