package scenarios

import (
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// hooks is a webhook, and events for it.
var hooks = []step{
	sql(`select posthorn.create_webhook('{ns}', 'w', '{"url": "http://127.0.0.1/"}')`),
	set(`select w.id as hook, w.group_id as g from posthorn.webhooks w join posthorn.groups g on g.id = w.group_id
		join posthorn.namespaces n on n.id = g.namespace_id and n.namespace = '{ns}'`),
	publish("e1", ""), publish("e2", ""),
}

var dropHooks = []string{"select posthorn.delete_webhook('{ns}', 'w')", dropGroup[0]}

func sender(n int) string { return fmt.Sprintf("sender-h-%d-0123abc%d", n, n) }

func leadHooks(n int) step {
	return step{Op: promise.Lead{Owner: sender(n)}, Gset: true, SQL: fmt.Sprintf("select term from posthorn.lead_webhooks({g}, '%s', '30 seconds')", sender(n))}
}

func takeHooks(n int, columns string) step {
	return set(fmt.Sprintf("select %s from posthorn.take_webhooks({g}, '%s', {term}, 10, '30 seconds')", columns, sender(n)))
}

// send is the round of a process that sends: it leads, takes a window, and settles it when all is delivered.
func send(n int) []step {
	return []step{
		leadHooks(n), takeHooks(n, "lease, attempt"),
		{Op: promise.Claim{}, Takes: true, SQL: "select {lease}::bigint, {attempt}::int, event_id from posthorn.webhook_events({lease}, {attempt}, 10)"},
		{Op: promise.Settle{}, SQL: fmt.Sprintf("select posthorn.record_webhooks({g}, '%s', {term}, '{\"windows\": [[{lease}, {attempt}]]}')", sender(n))},
	}
}

// results are those of deliveries, of which the log of webhooks has a row each.
const results = `coalesce(jsonb_agg(jsonb_build_object('webhook', {hook}, 'event', event_id, 'outcome', 'delivered', 'attempts', 1,
	'request_id', 'r', 'status', 200, 'duration_ms', 5, 'owed', %t))::text, '[]') as results`

// deliver is a round whose deliveries are logged: first of a window, then of the events that are owed.
func deliver(n int) []step {
	record := func(windows string) step {
		return step{Op: promise.Led{}, SQL: fmt.Sprintf("select posthorn.record_webhooks({g}, '%s', {term}, '{\"results\": {results}, \"windows\": %s}')", sender(n), windows)}
	}
	return []step{
		leadHooks(n), takeHooks(n, "lease, attempt, case when lease is null then '[]' else jsonb_build_array(jsonb_build_array(lease, attempt))::text end as windows"),
		set("select " + fmt.Sprintf(results, false) + " from posthorn.leases l cross join lateral posthorn.webhook_events(l.id, l.attempt, 10) where (l.id, l.attempt) = ({lease}, {attempt})"),
		record("{windows}"),
		set(fmt.Sprintf("select "+results+" from posthorn.due_webhooks({g}, '%s', {term}, array[{hook}], array[10], array[]::int[], array[]::bigint[])", true, sender(n))),
		record("[]"),
	}
}

// Webhooks, for which one process at a time sends.
var webhooks = []*schedule.Scenario{
	{
		Name: "webhook", Promises: []int{12}, Model: promise.New(promise.Rules{Leads: true}),
		Setup: hooks, Drain: send(3), Tidy: dropHooks,
		Finally: `select 'a lease is left' from posthorn.leases l where l.group_id = {g}`,
		Sessions: []session{
			run("S1", append(send(1)[:3], begin, send(1)[3], commit)...),
			run("S2", send(2)...),
			run("A", begin, publish("a1", ""), commit),
			run("T", wait(31*time.Second)),
		},
	},
	{
		// What a webhook misses while it is disabled, it gets when it is enabled.
		Name: "webhook-disabled", Promises: []int{12}, Model: promise.New(promise.Rules{Leads: true}),
		Setup: hooks, Drain: append([]step{sql("select posthorn.catch_up()")}, deliver(3)...), Tidy: dropHooks,
		Finally: `select 'promise 12: event ' || e.type || ' never came' from posthorn.events e join posthorn.namespaces n on n.id = e.namespace_id
			where n.namespace = '{ns}' and e.type !~ '^posthorn' and not exists (
				select from posthorn.webhook_attempts t where t.webhook_id = {hook} and t.event_id = e.id and t.outcome = 'delivered')`,
		Sessions: []session{
			run("D", sql("select posthorn.disable_webhook('{ns}', 'w')"), begin, sql("select posthorn.enable_webhook('{ns}', 'w')"), commit, sql("select posthorn.catch_up()")),
			run("S", deliver(1)...),
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
		},
	},
}
