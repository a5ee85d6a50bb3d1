package posthorntest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Drain waits until this client has no due work. Every projection and every group
// with handlers in the client must have received all events, without an active lease
// or a due retry. No job with a tag of the client may be due or in progress. So Drain
// also waits for events that handlers publish and jobs that they enqueue. The client
// must be running, usually by [Run].
//
// Drain does not wait for work that is due later: retries before their next attempt,
// with the events that wait behind them in ordered groups and projections, and
// delayed events and jobs. [Advance] makes them due. It also ignores the events of
// paused groups, and jobs whose tag is paused or at its limit.
func Drain(t testing.TB, ph *posthorn.Client) {
	t.Helper()
	db := connect(t, ph)
	defer db.Close(t.Context())
	wait(t, "drain", ph, func() string { return unfinished(t, db, ph) })
}

// unfinished describes the remaining work. One query reads it in one snapshot, so
// that an event is not missed while it moves between tables.
func unfinished(t testing.TB, db *pgx.Conn, ph *posthorn.Client) string {
	t.Helper()
	rows, _ := db.Query(t.Context(), unfinishedSQL, ph.Namespace(), handled(ph), workedTags(ph))
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(left, "; ")
}

// An unowned lease with a deadline in the future belongs to a projection that waits
// for its next attempt.
const unfinishedSQL = `
	with wanted as (
		select w.name, g.id, g.paused, g as whole
		from unnest($2::text[]) w (name)
		join posthorn.namespaces n on n.namespace = $1
		left join posthorn.groups g on g.namespace_id = n.id and g.name = w.name
	)
	select format('group %s is not there yet', name) from wanted where id is null
	union all
	select format('group %s has not been handed %s events', w.name, p.events)
	from wanted w
	cross join lateral posthorn.pending(w.whole) p
	where w.id is not null and not w.paused and p.events > 0
	union all
	select format('group %s has %s leases in flight', w.name, count(*))
	from wanted w
	join posthorn.leases l on l.group_id = w.id
	where l.until is not null and not (l.node is null and l.until > posthorn.now())
	group by w.name
	union all
	select format('group %s has %s leases that wait', w.name, count(*))
	from wanted w
	join posthorn.leases l on l.group_id = w.id
	where l.until is null and not w.paused
		and not exists (select from posthorn.retries r where r.group_id = w.id and r.slot = l.slot)
		and not exists (
			select from posthorn.leases x
			where x.group_id = w.id and x.slot = l.slot and x.node is null and x.until > posthorn.now())
	group by w.name
	union all
	select format('group %s has %s retries that are due', w.name, count(*))
	from wanted w
	join posthorn.retries r on r.group_id = w.id
	where r.lease_id is null and r.due_at <= posthorn.now() and not w.paused
		and not exists (
			select from posthorn.retries x
			where x.group_id = w.id and x.slot = r.slot and x.event_id <= r.event_id and x.due_at > posthorn.now())
	group by w.name
	union all
	select format('%s delayed events are due', count(*))
	from posthorn.delayed d
	join posthorn.namespaces n on n.id = d.namespace_id
	where n.namespace = $1 and d.deliver_at <= posthorn.now()
	having count(*) > 0
	union all
	select format('%s jobs are due', count(*))
	from (
		select r.namespace_id, r.job, r.month from posthorn.ready_jobs r
		union
		select w.namespace_id, w.job, w.month from posthorn.waiting_jobs w where w.due_at <= posthorn.now()
	) d
	join posthorn.namespaces n on n.id = d.namespace_id
	join posthorn.enqueued_jobs o on o.namespace_id = d.namespace_id and o.id = d.job and o.month = d.month
	where n.namespace = $1 and posthorn.ready_tags(o.tags) && $3::text[]
	having count(*) > 0
	union all
	select format('%s jobs are about to be unblocked', count(*))
	from posthorn.blocked_jobs b
	join posthorn.namespaces n on n.id = b.namespace_id
	join posthorn.enqueued_jobs o on o.namespace_id = b.namespace_id and o.id = b.job and o.month = b.month
	where n.namespace = $1 and posthorn.ready_tags(o.tags) && $3::text[] and not exists (
		select from posthorn.awaited_jobs a
		left join posthorn.finished_jobs f on f.job = a.before and f.month = a.before_month
		where a.job = b.job and f.status is distinct from 'COMPLETED')
	having count(*) > 0
	union all
	select format('%s jobs are in progress', count(*))
	from posthorn.running_jobs r
	join posthorn.enqueued_jobs o on o.namespace_id = r.namespace_id and o.id = r.job and o.month = r.month
	join posthorn.namespaces n on n.id = o.namespace_id
	where n.namespace = $1 and posthorn.ready_tags(o.tags) && $3::text[]
	having count(*) > 0`
