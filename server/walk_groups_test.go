package server

import (
	"time"

	"github.com/posthorn/posthorn/posthorntest"
)

// The overview names problems, the worst first, and leads to the pages that solve them.
func walkOverview(p *person) {
	p.bury(p.T, "billing", 3, "503 from bank.example")
	p.exec(p.T, `select posthorn.define_group('default', 'search'), posthorn.publish('default', 'order.placed')`)
	posthorntest.Advance(p.T, p.ph, 10*time.Minute)
	p.visit("/")
	p.seesIn("3 dead letters", "Group billing", "Handler error", "503 from bank.example")
	p.clickIn("2 groups that no worker reads: billing, search", "Show")
	p.clickIn("search", "search")
	p.sees("Group search", "No worker has a lease.")
	p.goTo("Overview")
	p.clickIn("3 dead letters", "Show")
	p.sees("By handler and error", "503 from bank.example")
	p.goTo("Overview")
	p.clickIn("3 dead letters", "Redrive 3…")
	p.sees("Redrive 3 dead letters?", "group billing")
	p.click("Redrive 3")
	p.sees("3 of 3", "done")

	p.finds("select count(*) = 3 from posthorn.retries")
	p.recorded("redrive-dead-letters billing 3")
	p.goTo("Overview")
	p.click("week")
	p.sees("attention", "no worker has claimed", "published")
	p.seesNone("dead letters")
}

// A group is paused and resumed, in the list and on its page, and its dead letters are
// redriven from there.
func walkGroups(p *person) {
	p.bury(p.T, "billing", 2, "503 from bank.example")
	p.exec(p.T, "select posthorn.define_group('default', 'mail')")
	paused := func(want string) { p.finds("select paused = " + want + " from posthorn.groups where name = 'billing'") }
	p.visit("/")
	p.goTo("Groups")
	p.click("Dead")
	p.sees("2 groups")
	p.fill("Name contains", "bill")
	p.click("Show")
	p.seesNone("mail")
	p.clickIn("billing", "Pause")
	p.sees("Group billing is paused.")
	paused("true")
	p.clickIn("billing", "Resume")
	p.sees("Group billing is resumed.")
	paused("false")
	p.clickIn("billing", "billing")
	p.sees("Group billing", "503 from bank.example")
	p.click("Pause")
	p.sees("Group billing is paused.")
	paused("true")
	p.click("Resume")
	paused("false")
	p.click("Redrive dead letters…")
	p.click("Redrive 2")
	p.sees("2 of 2", "done")
	p.finds("select count(*) = 2 from posthorn.retries")
	p.recorded("pause-group billing 1", "resume-group billing 1", "pause-group billing 1", "resume-group billing 1", "redrive-dead-letters billing 2")
}

// Before a group is moved, the page says how many events it would be handed again.
func walkSeek(p *person) {
	p.exec(p.T, `select posthorn.define_group('default', 'billing', '{"start": "beginning"}'), posthorn.publish('default', 'order.placed'), posthorn.publish('default', 'order.paid')`)
	p.exec(p.T, "select posthorn.settle(lease, attempt) from (select distinct lease, attempt from posthorn.claim('default', 'billing', 'w')) c")
	behind := func(n string) { p.finds("select lag_events = " + n + " from posthorn.group_status") }
	p.visit("/")
	p.goTo("Groups")
	p.clickIn("billing", "billing")
	behind("0")
	p.choose("To a time", "2000-01-01T00:00:00") // in the zone of the person
	p.until("renewed")
	p.exec(p.T, "select posthorn.publish('default', 'order.paid')")
	p.exec(p.T, "select posthorn.claim('default', 'billing', 'worker-1')")
	p.seesIn("worker-1", "1")
	p.click("Preview…")
	p.sees("Move group billing to 2000-01-01T05:00:00Z?", "handed 3 events again", "lose 1 lease")
	p.click("Back")
	p.sees("Group billing")
	behind("0")
	p.click("To the beginning…")
	p.sees("Move group billing to the beginning of the log?", "handed 3 events again")
	p.click("Move it")
	p.sees("Group billing was moved.", "3 events")
	behind("3")
	p.click("To the end…")
	p.sees("never be handed 3 events")
	p.click("Move it")
	behind("0")
	p.recorded("seek-group billing 1", "seek-group billing 1")
}

// Dead letters are listed by their reasons; one is opened and redriven.
func walkDeadLetters(p *person) {
	p.bury(p.T, "billing", 2, "503 from bank.example")
	p.exec(p.T, "select posthorn.define_group('default', 'mail')")
	p.bury(p.T, "mail", 1, "no such mailbox")
	p.visit("/")
	p.goTo("Dead letters")
	p.seesIn("billing", "Handler error", "2", "503 from bank.example")
	p.clickIn("503 from bank.example", "Handler error")
	p.seesNone("no such mailbox")
	p.fill("Error contains", "mailbox")
	p.click("Show")
	p.sees("No dead letter matches.")
	p.click("All")
	p.sees("no such mailbox")
	p.clickIn("no such mailbox", "no such mailbox")
	p.sees("Dead letter", "attempt 1 failed on w: no such mailbox")
	p.unfold("Stack")
	p.click("Redrive")
	p.sees("is handed out again.", "No dead letter matches.")
	p.finds(`select count(*) = 1 from posthorn.retries r join posthorn.groups g on g.id = r.group_id and g.name = 'mail'`)
	p.finds("select count(*) = 2 from posthorn.dead_letters")
	p.recorded("redrive-dead-letters 1")
}

// A dead letter is redriven with another payload; the log keeps the old one.
func walkEditDeadLetter(p *person) {
	p.bury(p.T, "billing", 1, "no such card")
	p.visit("/ui/default/dead-letters")
	p.clickIn("no such card", "no such card")
	p.inSight("no such card", "Redrive", "Edit and redrive…", "Discard", "billing")
	p.click("Edit and redrive…")
	p.sees("no such card", "The log keeps event 1 as it was")
	p.fill("Payload, JSON", `{"card": 7}`)
	p.click("Redrive with this payload")
	p.sees("The edited event is handed out.", "Event 2", `"card": 7`)
	p.finds(`select count(*) = 1 from posthorn.retries r where (r.event->>'payload')::jsonb = '{"card": 7}' or event_id = 2`)
	p.finds("select count(*) = 1 from posthorn.dead_letters where discarded_at is not null and event_id = 1")
	p.recorded("redrive-edited-dead-letter 1 1")
}

// Discarding all that match says the number beforehand, shows its progress, and is
// undone.
func walkDiscard(p *person) {
	p.bury(p.T, "billing", 1500, "503 from bank.example")
	p.exec(p.T, "select posthorn.define_group('default', 'mail')")
	p.bury(p.T, "mail", 2, "no such mailbox")
	discarded := func(n string) {
		p.finds("select count(*) filter (where discarded_at is not null) = " + n + " and count(*) = 1502 from posthorn.dead_letters")
	}
	p.visit("/ui/default/dead-letters")
	p.fill("Error contains", "bank")
	p.click("Show")
	p.click("Discard all that match…")
	p.sees("Discard 1,500 dead letters?", "error bank")
	p.click("Back")
	equal(p.T, "the filter", p.field("Error contains"), "bank")
	discarded("0")
	p.click("Discard all that match…")
	p.click("Discard 1,500")
	p.sees("1,500 of 1,500", "done")
	discarded("1500")
	p.goTo("Dead letters")
	p.seesNone("503 from bank.example")
	p.sees("no such mailbox")
	p.click("Discarded dead letters")
	p.sees("503 from bank.example", "by anyone")
	p.click("Recover all that match…")
	p.sees("Recover 1,500 dead letters?")
	p.click("Recover 1,500")
	p.sees("1,500 of 1,500", "done")
	discarded("0")
	p.recorded("discard-dead-letters 1500", "recover-dead-letters 1500")
	p.goTo("Dead letters")
	p.seesIn("billing", "1,500")
}
