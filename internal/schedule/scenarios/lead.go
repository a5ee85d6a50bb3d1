package scenarios

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// owner is the name of a process that leads.
func owner(n int) string { return fmt.Sprintf("supervisor-h-%d-0123abc%d", n, n) }

// relay is the round of a relay: it leads, takes a window, reads it and settles it.
func relay(n int) []step {
	return []step{
		{Op: promise.Lead{Owner: owner(n)}, Gset: true, SQL: fmt.Sprintf("select term from posthorn.lead_relay({g}, '%s', '30 seconds')", owner(n))},
		set(fmt.Sprintf(`select t.lease, t.attempt, u::text as token from (select gen_random_uuid() as u offset 0) x
			cross join lateral posthorn.take_relay({g}, '%s', {term}, 1, '30 seconds', u) t`, owner(n))),
		{Op: promise.Claim{}, Takes: true, SQL: "select {lease}::bigint, {attempt}::int, event_id from posthorn.lease_events('{token}')"},
		{Op: promise.Settle{}, SQL: fmt.Sprintf("select posthorn.settle_relay({g}, '%s', {term}, {lease}, {attempt})", owner(n))},
	}
}

// leadAs is the lead of a process with several calls at once.
var leadAs = step{Op: promise.Lead{Owner: owner(1)}, Gset: true, SQL: fmt.Sprintf("select term as held from posthorn.lead_relay({g}, '%s', '30 seconds')", owner(1))}

// Relays, of which one leads.
var lead = []*schedule.Scenario{
	{
		Name: "relay", Promises: []int{10}, Model: promise.New(promise.Rules{Leads: true}),
		Setup: []step{set("select posthorn.define_relay('{ns}', 'g') as g"), publish("e1", ""), publish("e2", "")},
		Drain: relay(3), Tidy: dropGroup,
		Finally: `select 'a lease is left' from posthorn.leases l where l.group_id = {g}
			union all select 'has_unread is true' where posthorn.has_unread('{ns}', 'g')`,
		Sessions: []session{
			run("R1", append(relay(1), relay(1)[1:]...)...),
			run("R2", relay(2)...),
			run("A", begin, publish("a1", ""), commit),
			run("T", wait(31*time.Second)),
		},
	},
	{
		// Two calls of the process that leads, of which the first one's answer was late.
		Name: "relay-calls", Promises: []int{10}, Model: promise.New(promise.Rules{Ordered: true}), // by key: the calls read what they took in any order
		Setup: []step{set("select posthorn.define_relay('{ns}', 'g') as g"), publish("e1", "1"), publish("e2", "2"), leadAs},
		Drain: relay(3), Tidy: dropGroup,
		Finally: `select 'a lease is left' from posthorn.leases l where l.group_id = {g}`,
		Sessions: []session{
			run("R1", slices.Concat([]step{set("select {held} as term"), begin}, relay(1)[1:3], []step{commit}, relay(1)[3:])...),
			run("R2", slices.Concat([]step{set("select {held} as term")}, relay(1)[1:])...),
			run("A", begin, publish("a1", "3"), commit),
		},
	},
	{
		// A process that led before leads again, while a thread of its first time goes on.
		Name: "relay-again", Promises: []int{10}, Model: promise.New(promise.Rules{Leads: true}),
		Setup: []step{set("select posthorn.define_relay('{ns}', 'g') as g"), publish("e1", ""), publish("e2", "")},
		Drain: relay(3), Tidy: dropGroup,
		Finally: `select 'a lease is left' from posthorn.leases l where l.group_id = {g}
			union all select 'has_unread is true' where posthorn.has_unread('{ns}', 'g')`,
		Sessions: []session{
			run("R1", relay(1)...),
			run("R2", append([]step{wait(31 * time.Second)}, relay(2)[:2]...)...),
			run("R1again", append([]step{wait(31 * time.Second)}, relay(1)...)...),
		},
	},
}
