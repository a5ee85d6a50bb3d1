package server

import (
	"context"
	"html"
	"regexp"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var shownCommand = regexp.MustCompile(`^curl -X (\w+) http://[^/]+(/\S+) -H '(Content-Type: application/json)' -d '(.*)'$`)

// On an empty database the overview shows commands to try. It shows their effects while
// they run, without being loaded again.
func walkFirstVisit(p *person) {
	p.visit("/")
	p.sees("Three commands to try")
	var commands []string
	p.do(chromedp.Evaluate(`[...document.querySelectorAll(".command code")].map((e) => e.innerText)`, &commands))
	equal(p.T, "number of commands", len(commands), 3)
	p.must("mark")
	for i, command := range commands {
		parts := shownCommand.FindStringSubmatch(html.UnescapeString(command))
		if parts == nil {
			p.Fatalf("not a command: %s", command)
		}
		if a := p.call(p.T, parts[1], parts[2], parts[4]); a.status >= 300 {
			p.Fatalf("%s: %d %s", command, a.status, a.body)
		}
		if i == 0 {
			p.sees("Events per second")
			p.seesNone("Three commands to try")
		}
	}
	p.seesIn("billing", "1")
	p.must("marked")
	p.finds(`select count(*) = 1 from posthorn.events e join posthorn.group_status g on g.leases = 1 and g.group_name = 'billing' where e.type = 'order.placed'`)
}

// New events come to the list by themselves, and leave alone the field in which the
// person types.
func walkLiveTail(p *person) {
	p.visit("/ui/default/events")
	p.sees("No event was published yet.")
	p.must("mark")
	p.fill("Key", "half a w")
	p.exec(p.T, "select posthorn.publish('default', 'order.placed')")
	p.sees("order.placed")
	p.exec(p.T, "select posthorn.publish('default', 'order.paid')")
	p.sees("order.paid")
	p.must("marked")
	equal(p.T, "the field", p.field("Key"), "half a w")
}

// Events are found by type, key, payload and time.
func walkSearch(p *person) {
	p.exec(p.T, `select posthorn.publish('default', 'order.placed', '{"order": 7}', key => 'C-7'), posthorn.publish('default', 'order.paid', '{"order": 7}', key => 'C-7'),
		posthorn.publish('default', 'mail.sent', '{"order": 8}', key => 'C-8')`)
	p.visit("/")
	p.goTo("Events")
	p.sees("order.placed", "order.paid", "mail.sent")
	for _, search := range []struct {
		label, text string
		finds, not  []string
	}{
		{"Type, such as order.*", "order.*", []string{"order.placed", "order.paid"}, []string{"mail.sent"}},
		{"Key", "C-8", []string{"mail.sent"}, []string{"order.p"}},
		{"Payload contains, JSON", `{"order": 7}`, []string{"order.placed", "order.paid"}, []string{"mail.sent"}},
	} {
		p.fill(search.label, search.text)
		p.click("Search")
		p.sees(search.finds...)
		p.seesNone(search.not...)
		equal(p.T, search.label, p.field(search.label), search.text)
		p.click("All")
		p.sees("order.placed", "mail.sent")
	}
	p.choose("Before", "2000-01-01T00:00")
	p.click("Search")
	p.sees("No event matches.")
	p.click("All")
	p.clickIn("order.paid", "C-7") // a key in the list is a search
	p.sees("order.placed", "order.paid")
	p.seesNone("mail.sent")
}

// An event shows its story in each group. A person publishes another one like it.
func walkEvent(p *person) {
	p.exec(p.T, `select posthorn.define_group('default', 'mail'), posthorn.define_group('default', 'billing', '{"attempts": 3, "delays": ["1 hour"]}')`)
	p.exec(p.T, `select posthorn.publish('default', 'order.placed', '{"order": 7}', key => 'C-7', tags => '{web,vip}', stream => 'orders', metadata => '{"source": "shop"}')`)
	p.exec(p.T, `select posthorn.settle(lease, attempt, json_build_array(json_build_object('event', event_id, 'error', 'bank is closed'))::jsonb) from posthorn.claim('default', 'billing', 'worker-1')`)
	p.visit("/")
	p.goTo("Events")
	p.clickIn("order.placed", "1")
	p.seesIn("billing", "RETRYING", "attempt 1 failed on worker-1", "bank is closed")
	p.seesIn("mail", "PENDING")
	p.click("Publish one like this…")
	for label, text := range map[string]string{"Type": "order.placed", "Stream": "orders", "Key": "C-7", "Tags, separated by commas": "web, vip"} {
		equal(p.T, label, p.field(label), text)
	}
	p.fill("Payload, JSON", `{"order": 8`)
	p.click("Publish")
	p.sees("the payload is not valid JSON", "nothing was done")
	p.finds("select count(*) = 1 from posthorn.events")
	p.visit("/ui/default/event/publish?like=1")
	p.fill("Payload, JSON", `{"order": 8}`)
	p.click("Publish")
	p.sees("Published.", "Event 2: order.placed")
	p.finds(`select payload::jsonb = '{"order": 8}' and key = 'C-7' and tags = '{web,vip}' and (metadata::jsonb)->>'source' = 'shop' from posthorn.events where id = 2`)
	p.recorded("publish-events order.placed 1")
}

// The box at the top finds things by their number or name. A key leads to it.
func walkFind(p *person) {
	p.exec(p.T, "select posthorn.publish('default', 'order.placed'), posthorn.enqueue('default', 'send mail'), posthorn.define_group('default', 'billing')")
	p.visit("/")
	p.press("/")
	p.until("focused", "Find an event, a job, a tag, a worker or a group")
	p.fill("Find an event, a job, a tag, a worker or a group", "1")
	p.press(kb.Enter)
	p.sees("1 order.placed", "1 send mail")
	p.click("1 send mail")
	p.sees("Job 1 · send mail")
	p.fill("Find an event, a job, a tag, a worker or a group", "BILL")
	p.press(kb.Enter)
	p.sees("Group billing") // the only hit
	p.fill("Find an event, a job, a tag, a worker or a group", "C-7")
	p.press(kb.Enter)
	p.sees("has the number or the name C-7")
	p.click("key")
	equal(p.T, "the key to search for", p.field("Key"), "C-7")
}

// An event that waits behind a failed one of its key says so, and not that it failed.
func walkBlockedEvent(p *person) {
	p.exec(p.T, `select posthorn.define_group('default', 'billing', '{"order": "key", "start": "beginning"}')`)
	p.exec(p.T, `select posthorn.publish('default', 'order.placed', key => 'k') from generate_series(1, 2)`)
	p.exec(p.T, `select posthorn.settle(lease, attempt, '[{"event": 1, "error": "no such card", "retry_in": "1 hour"}, {"event": 2, "released": true, "retry_in": "1 hour"}]')
		from (select distinct lease, attempt from posthorn.claim('default', 'billing', 'w')) c`)
	p.visit("/ui/default/group?name=billing")
	p.seesIn("no such card", "1")
	p.seesIn("waits behind event 1", "2", "0", "–")
	p.visit("/ui/default/event?id=2")
	p.seesIn("billing", "RETRYING", "waits behind event 1")
	p.click("event 1")
	p.sees("attempt 1 failed on w: no such card")
}

// Times are right although the page took minutes to arrive.
func walkSlowPage(p *person) {
	p.exec(p.T, "select posthorn.publish('default', 'order.placed')")
	var script cdppage.ScriptIdentifier
	p.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		script, err = cdppage.AddScriptToEvaluateOnNewDocument(`{ const now = Date.now; Date.now = () => now() + 300000 }`).Do(ctx)
		return err
	}))
	p.Cleanup(func() { p.do(cdppage.RemoveScriptToEvaluateOnNewDocument(script)) }) // another test gets the tab
	p.visit("/")
	p.seesIn("all namespaces", "last event 5m")
	var inPage, inSentences string
	p.do(chromedp.Evaluate("[1, 59, 77, 535, 3569, 3570, 7020, 172799, 172800, 900000].map(inWords).join()", &inPage))
	const inSQL = "select string_agg(posthorn.in_words(s * interval '1 second'), ',' order by s) from unnest(array[1, 59, 77, 535, 3569, 3570, 7020, 172799, 172800, 900000]) s"
	if err := p.ph.Pool().QueryRow(p.Context(), inSQL).Scan(&inSentences); err != nil {
		p.Fatal(err)
	}
	equal(p.T, "periods on the page and in sentences", inPage, inSentences)
}
