package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

type (
	step    = schedule.Step
	session = schedule.Session
)

func run(name string, steps ...step) session { return session{Name: name, Steps: steps} }

// Transactions.
var (
	begin     = step{SQL: "begin"}
	repeat    = step{SQL: "begin isolation level repeatable read"}
	serial    = step{SQL: "begin isolation level serializable"}
	commit    = step{SQL: "commit"}
	rollback  = step{SQL: "rollback"}
	savepoint = step{SQL: "savepoint s"}
	back      = step{SQL: "rollback to s"}
)

func prepareTx(name string) step     { return step{SQL: "prepare transaction '" + name + "'"} }
func commitPrepared(n string) step   { return step{SQL: "commit prepared '" + n + "'"} }
func rollbackPrepared(n string) step { return step{SQL: "rollback prepared '" + n + "'"} }

// Things that happen.
func wait(d time.Duration) step { return step{Clock: d} }
func kill(session string) step  { return step{Kill: session} }

var crash = step{Crash: true}

// sql is a statement that means nothing to the model. set keeps its columns, as \gset does.
func sql(s string) step { return step{SQL: s} }
func set(s string) step { return step{SQL: s, Gset: true} }

// Log and groups.
func publish(label, key string) step { return publishWith(label, key, "") }

// tagged takes the long way of publish.
func tagged(label string) step { return publishWith(label, "", ", tags => array['t']") }

func publishWith(label, key, more string) step {
	if key != "" {
		more = ", key => '" + key + "'" + more
	}
	return step{Op: promise.Publish{Label: label, Key: key}, SQL: "select posthorn.publish('{ns}', '" + label + "'" + more + ")"}
}

func group(config string, more ...step) []step {
	return slices.Concat([]step{set("select posthorn.define_group('{ns}', 'g', '" + config + "') as g")}, more)
}

func claim(worker string, n int) step {
	return step{Op: promise.Claim{Most: n}, Takes: true, SQL: fmt.Sprintf("select lease, attempt, event_id from posthorn.claim('{ns}', 'g', '%s', %d, '30 seconds')", worker, n)}
}

var (
	settle  = step{Op: promise.Settle{}, SQL: "select posthorn.settle({lease}, {attempt})"}
	fail    = step{Op: promise.Settle{Failed: true}, SQL: "select posthorn.settle({lease}, {attempt}, '{failures}')"}
	release = step{Op: promise.Release{}, SQL: "select posthorn.release({lease}, {attempt})"}
	extend  = step{Op: promise.Extend{}, SQL: "select posthorn.extend({lease}, {attempt}, '30 seconds')"}
	until   = step{Op: promise.SettleFirst{}, SQL: "select posthorn.settle_until({lease}, {attempt}, {first})"}
	// The first event of the lease has failed; the lease stays.
	failFirst = step{Op: promise.SettleFirst{Failed: true}, SQL: "select posthorn.settle_until({lease}, {attempt}, {first}, failures => '[{\"event\": {first}, \"error\": \"no\", \"retry_in\": \"1 second\"}]')"}

	redrive = sql("select posthorn.redrive('{ns}', 'g')")
)

func seek(to string) step {
	return step{Op: promise.Seek{}, SQL: "select posthorn.seek('{ns}', 'g', '" + to + "')"}
}

var drainGroup = []step{claim("drain", 100), settle}

// emptyGroup says what a group still has when all is settled.
const emptyGroup = `
select 'a lease is left' from posthorn.leases l where l.group_id = {g}
union all select 'a retry is left' from posthorn.retries r where r.group_id = {g}
union all select 'has_unread is true' where posthorn.has_unread('{ns}', 'g')`

var dropGroup = []string{`select posthorn.delete_group('{ns}', g.name) from posthorn.groups g
	join posthorn.namespaces n on n.id = g.namespace_id where n.namespace = '{ns}'`}

// Jobs.
func enqueue(label, more string, after ...string) step {
	s := fmt.Sprintf("select posthorn.enqueue('{ns}', '%s', tags => array['x']%s", label, more)
	if len(after) > 0 {
		s += ", after => array[{job_" + strings.Join(after, "}, {job_") + "}]"
	}
	return step{Op: promise.Enqueue{Label: label, After: after}, SQL: s + ")"}
}

func claimJobs(worker string, n int) step { return claimTags(worker, "'x'", n) }

// claimOf takes one job that has any of some tags.
func claimOf(worker, tags string) step { return claimTags(worker, tags, 1) }

func claimTags(worker, tags string, n int) step {
	return step{Op: promise.ClaimJobs{}, Takes: true, SQL: fmt.Sprintf("select id, attempt from posthorn.claim_jobs('{ns}', '%s', array[%s], %d)", worker, tags, n)}
}

func complete(worker string) step {
	return step{Op: promise.Complete{}, SQL: "select log_id, action from posthorn.complete_job({job}, '" + worker + "', {attempt})"}
}

func completeAll(worker string) step {
	return step{Op: promise.CompleteAll{}, SQL: "select c from posthorn.complete_jobs('" + worker + "', array[{jobs}], array[{attempts}]) c"}
}

func heartbeat(worker string) step {
	return step{Op: promise.Heartbeat{}, SQL: "select posthorn.heartbeat_job({job}, '" + worker + "', {attempt})"}
}

func failJob(worker string) step {
	return step{Op: promise.FailJob{}, SQL: "select log_id, action from posthorn.fail_job({job}, '" + worker + "', 'no', {attempt}, retry_in => '1 second')"}
}

func giveUp(worker string) step {
	return step{Op: promise.FailJob{Permanent: true}, SQL: "select log_id, action from posthorn.fail_job({job}, '" + worker + "', 'no', {attempt}, permanent => true)"}
}

func cancel(label string) step {
	return step{Op: promise.Change{Label: label, How: "cancel"}, SQL: "select posthorn.cancel_job({job_" + label + "})"}
}

func reset(label string) step {
	return step{Op: promise.Change{Label: label, How: "reset"}, SQL: "select posthorn.reset_job({job_" + label + "})"}
}

func deleteJob(label string) step {
	return step{Op: promise.Change{Label: label, How: "delete"}, SQL: "select posthorn.delete_job({job_" + label + "})"}
}

var wake = sql("select posthorn.wake_jobs()")

var drainJobs = []step{claimJobs("drain", 1), complete("drain"), wake}

// emptyQueue says what the queue still has when all jobs have ended.
const emptyQueue = `
select 'a job is blocked: ' || b.job from posthorn.blocked_jobs b join posthorn.namespaces n on n.id = b.namespace_id and n.namespace = '{ns}'
union all select 'a key is left: ' || k.unique_key from posthorn.job_keys k join posthorn.namespaces n on n.id = k.namespace_id and n.namespace = '{ns}' where k.expires_at is null
union all select 'a job is parked' from posthorn.parked_jobs p join posthorn.namespaces n on n.id = p.namespace_id and n.namespace = '{ns}'
union all select 'a place under a tag is taken' from posthorn.running_tags r join posthorn.namespaces n on n.id = r.namespace_id and n.namespace = '{ns}'`

// dropJobs removes the jobs, also from the tables that all namespaces share.
var dropJobs = []string{
	`do $$ declare t text; begin
	foreach t in array '{running_jobs, waiting_jobs, ready_jobs, parked_jobs, job_keys, job_limits, running_tags, job_starts, job_openings, blocked_jobs, job_awaits}'::text[] loop
		execute format('delete from posthorn.%I where namespace_id = (select id from posthorn.namespaces where namespace = %L)', t, '{ns}');
	end loop;
	foreach t in array '{job_endings, awaited_jobs, awaited_events, await_places, retried_jobs}'::text[] loop
		execute format('delete from posthorn.%I', t);
	end loop; end $$`,
}
