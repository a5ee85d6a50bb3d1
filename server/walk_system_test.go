package server

import (
	"time"

	"github.com/posthorn/posthorn/posthorntest"
)

// The list of streams leads to their policies, keys and events.
func walkStreams(p *person) {
	p.exec(p.T, `select posthorn.set_stream_policy('default', 'payroll', 'restricted'), posthorn.set_stream_policy('default', 'patients', 'confidential')`)
	p.exec(p.T, `insert into posthorn.stream_keys (namespace_id, stream_name, version, keeper, key) select id, 'patients', 1, '', 'wrapped' from posthorn.namespaces where namespace = 'default'`)
	p.exec(p.T, "select posthorn.publish('default', 'order.placed', stream => 'orders'), posthorn.publish('default', 'mail.sent')")
	p.visit("/")
	p.goTo("Streams")
	p.seesIn("payroll", "restricted")
	p.clickIn("patients", "patients")
	p.sees("payloads are encrypted")
	p.click("Rotate the key")
	p.sees("Stream patients gets a new key with its next message.")
	p.finds("select retired_at is not null from posthorn.stream_keys")
	p.recorded("rotate-stream-key patients 1")
	p.goTo("Streams")
	p.clickIn("orders", "orders")
	p.sees("every token of the namespace may read it")
	p.click("Its events")
	p.sees("order.placed")
	p.seesNone("mail.sent")
}

// A schedule is run at once, paused and resumed.
func walkSchedules(p *person) {
	p.exec(p.T, `select posthorn.schedule('default', 'nightly', '0 2 * * *', 'report.due', '{"of": "yesterday"}', timezone => 'Europe/Berlin')`)
	state := func(want string) { p.finds("select state = '" + want + "' from posthorn.schedules") }
	p.visit("/")
	p.goTo("Schedules")
	p.clickIn("nightly", "Run now")
	p.sees("Schedule nightly has published its event.")
	p.finds(`select count(*) = 1 from posthorn.events where type = 'report.due' and payload::jsonb = '{"of": "yesterday"}'`)
	p.clickIn("nightly", "Pause")
	p.seesIn("nightly", "paused")
	state("paused")
	p.clickIn("nightly", "nightly")
	p.seesNone("Next times")
	p.click("Resume")
	p.sees("Schedule nightly is resumed.", "Next times", "Europe/Berlin")
	state("active")
	p.recorded("run-schedule nightly 1", "pause-schedule nightly 1", "resume-schedule nightly 1")
}

// The form of a schedule says when it is due while a person types, and has fields for the job that it enqueues.
func walkMakeSchedule(p *person) {
	p.visit("/")
	p.goTo("Schedules")
	p.click("Make a schedule…")
	p.sees("The next times appear here when the field When is filled in.")
	p.fill("Name", "mornings")
	p.fill("When", "30 8 * * mon-fri")
	p.sees("At 08:30, on Monday to Friday, in UTC. The next times, by your clock:")
	p.fill("Time zone", "Europe/Nowhere")
	p.sees("time zone 'Europe/Nowhere' is not known")
	p.fill("Time zone", "Europe/Berlin")
	p.sees("At 08:30, on Monday to Friday, in Europe/Berlin.")
	p.fill("When", "61 8 * * *")
	p.sees("'61' is no minute", "Give values from 0 to 59")
	p.fill("When", "30 8 * * mon-fri")
	p.sees("At 08:30")
	p.seesNone("The task in a few words")
	p.choose("Enqueue a job", "yes")
	p.seesNone("The type of the event")
	p.fill("Title. The task in a few words", "send reports")
	p.fill("Tags. Workers claim jobs by their tags", "mail, reports")
	p.fill("Payload. Any JSON, up to 1 MiB. Default: {}", `{"of": "yesterday"}`)
	p.fill("Max retries. How many attempts may fail. Default: 3", "0")
	p.choose("Times that were missed while no process ran", "Not at all")
	p.click("Save")
	p.sees("Schedule mornings is active.", "at 08:30, on Monday to Friday")
	p.finds(`select (cron_expression, timezone, catch_up) = ('30 8 * * mon-fri', 'Europe/Berlin', 'skip')
		and job = '{"title": "send reports", "tags": ["mail", "reports"], "payload": {"of": "yesterday"}, "max_retries": 0}' from posthorn.schedules`)
	p.click("Change…")
	p.sees("Change schedule mornings", "At 08:30, on Monday to Friday, in Europe/Berlin.")
	p.fill("Title. The task in a few words", "send all reports")
	p.click("Save")
	p.finds(`select job = '{"title": "send all reports", "tags": ["mail", "reports"], "payload": {"of": "yesterday"}, "max_retries": 0}' from posthorn.schedules`)
	p.click("Change…")
	p.choose("Publish an event", "yes")
	p.fill("Event type. The type of the event; required without job", "report.due")
	p.click("Save")
	p.finds("select event_type = 'report.due' and job is null from posthorn.schedules")
	p.recorded("put-schedule mornings 1", "put-schedule mornings 1", "put-schedule mornings 1")
}

// A node that sends no heartbeats is removed, and its lease is free.
func walkNodes(p *person) {
	p.exec(p.T, `select posthorn.register_node('default', 'node-1', 'web')`)
	p.exec(p.T, `select posthorn.define_group('default', 'billing', '{"start": "beginning"}'), posthorn.publish('default', 'order.placed')`)
	p.exec(p.T, `select posthorn.claim('default', 'billing', 'node-1', lease_for => '1 day')`)
	p.visit("/")
	p.goTo("Nodes")
	p.seesIn("node-1", "web", "1")
	p.seesNone("Remove")
	posthorntest.Advance(p.T, p.ph, 70*time.Second)
	p.goTo("Nodes")
	p.seesIn("node-1", "silent", "Remove")
	posthorntest.Advance(p.T, p.ph, 10*time.Minute)
	p.goTo("Nodes")
	p.seesIn("node-1", "stale")
	p.clickIn("node-1", "Remove")
	p.sees("Removed node node-1, gave back 1 lease.", "No process has registered in this namespace.")
	p.finds("select not exists (select from posthorn.nodes)")
	p.finds("select count(*) = 1 from posthorn.claim('default', 'billing', 'node-2')")
	p.recorded("remove-node node-1 1")
}

// A person sees which worker has had its job for longest, and goes to the job and to the group of a lease.
func walkBusy(p *person) {
	p.visit("/")
	p.goTo("Busy")
	p.sees("No worker has a job or a lease.")
	p.exec(p.T, `select posthorn.define_group('default', 'billing', '{"start": "beginning"}'), posthorn.publish('default', 'order.placed')`)
	p.exec(p.T, `select posthorn.enqueue('default', 'send mail', tags => '{mail}')`)
	p.exec(p.T, `select posthorn.claim_jobs('default', 'mailer-1', '{mail}')`)
	posthorntest.Advance(p.T, p.ph, time.Minute)
	p.exec(p.T, `select posthorn.claim('default', 'billing', 'api-1', lease_for => '1 day')`)
	p.goTo("Busy")
	p.seesIn("mailer-1", "send mail", "stalled", "silent for 1m", "others get it in")
	p.clickIn("mailer-1", "1 send mail")
	p.sees("Job 1 · send mail", "running")
	p.goTo("Busy")
	p.clickIn("api-1", "lease 1 of billing")
	p.sees("Group billing")
}

// A relay is paused and resumed. Imports and archives show their state.
func walkRelays(p *person) {
	p.exec(p.T, `select posthorn.publish('default', 'order.placed', stream => 'orders') from generate_series(1, 3)`)
	p.exec(p.T, `select posthorn.define_relay('default', 'to-redis', '{"streams": ["orders"]}'),
		posthorn.define_import('default', 'from-nats', 'nats://broker:4222', 'nats', '{orders}'),
		posthorn.define_archive('default', 'cold', 'file:///var/archive')`)
	p.exec(p.T, `select posthorn.lead_relay(g.id, 'supervisor-host-1-0123abcd', '1 day') from posthorn.groups g where g.name = 'to-redis'`)
	paused := func(want string) {
		p.finds("select paused = " + want + " from posthorn.groups where name = 'to-redis'")
	}
	p.visit("/")
	p.goTo("Relays")
	p.seesIn("to-redis", "3", "supervisor-host-1-0123abcd")
	p.seesNone("from-nats", "cold")
	p.clickIn("to-redis", "to-redis")
	p.seesIn("supervisor-host-1-0123abcd", "3 events")
	p.click("Pause")
	p.sees("to-redis: paused.")
	paused("true")
	p.click("Resume")
	paused("false")
	p.goTo("Imports")
	p.seesIn("from-nats", "none")
	p.clickIn("from-nats", "from-nats")
	p.sees("Import from-nats", "nats://broker:4222")
	p.goTo("Archives")
	p.seesIn("cold", "3")
	p.clickIn("cold", "cold")
	p.sees("Archive cold", "file:///var/archive")
	p.recorded("pause-group to-redis 1", "resume-group to-redis 1")
}

// A projection shows how far it is behind. Its page pauses it, and does not offer to move
// it.
func walkProjections(p *person) {
	p.exec(p.T, `select posthorn.define_projection('default', 'totals'), posthorn.publish('default', 'order.placed') from generate_series(1, 2)`)
	p.visit("/")
	p.goTo("Projections")
	p.seesIn("totals", "2", "follows the log")
	p.clickIn("totals", "totals")
	p.click("Pause")
	p.finds("select paused from posthorn.groups where name = 'totals'")
	p.seesNone("To the beginning")
	p.goTo("Projections")
	p.seesIn("totals", "paused")
	p.recorded("pause-group totals 1")
}
