package guarantee

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// clockAt stops the database's clock at a moment.
func (s *session) clockAt(moment string) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`create or replace function posthorn.now() returns timestamptz
		language sql volatile parallel safe
		return '%s'::timestamptz`, moment))
}

// schedule makes a schedule that is due at each full hour.
func (s *session) schedule(name, catchUp string) {
	s.t.Helper()
	s.exec("select posthorn.schedule('default', $1, '@hourly', 'hour.struck', catch_up => $2)", name, catchUp)
}

func (s *session) fire() int {
	s.t.Helper()
	return value[int](s, "select posthorn.fire_schedules()")
}

// fired lists the due times of the events in the log.
func (s *session) fired() []string {
	s.t.Helper()
	return column[string](s, `select metadata->>'scheduledFor' from posthorn.events where metadata->>'producer' = 'scheduler' order by id`)
}

// seed 000.16, seed 000.61, 000.32
func TestScheduleFiresWhenDue(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	task := value[string](s, `select posthorn.schedule('default', 'hourly', '@hourly', 'hour.struck', '{"bell": 1}',
		stream => 'tower', key => 'k', metadata => '{"a": 1}')::text`)
	equal(t, "before it is due", s.fire(), 0)
	s.clockAt("2026-01-01 01:00:00.2Z")
	report := value[string](s, "select posthorn.tend()->>'fire_schedules'")
	equal(t, "upkeep fired", report, "1")
	equal(t, "again", s.fire(), 0)
	equal(t, "event", value[string](s, `
		select concat_ws(' ', st.name, e.type, e.key, e.payload, (e.metadata::jsonb - 'scheduledTaskId'), e.metadata->>'scheduledTaskId' = $1)
		from posthorn.events e join posthorn.streams st on st.id = e.stream_id`, task),
		`tower hour.struck k {"bell": 1} {"a": 1, "producer": "scheduler", "scheduledFor": "2026-01-01T01:00:00Z"} t`)
	equal(t, "next and last", value[string](s, `
		select concat_ws(' ', next_run_at = '2026-01-01 02:00Z', last_run_at = posthorn.now(), updated_at = posthorn.now(), job_id)
		from posthorn.scheduled_tasks`), "t t t")
}

// Ten connections fire as fast as they can while the clock advances, and each due
// time is fired once.
//
// seed 000.16
func TestScheduleFiresOncePerDueTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.exec("create table public.clock as select '2026-01-01 00:30Z'::timestamptz as now")
	s.exec("create or replace function posthorn.now() returns timestamptz language sql volatile as 'select now from public.clock'")
	const hours, schedules = 20, 3
	for i := range schedules {
		s.schedule(fmt.Sprint(i), "all")
	}
	stop := make(chan struct{})
	var racers sync.WaitGroup
	for i := range 10 {
		racer, verb := s.another(), []string{"select posthorn.fire_schedules()", "select posthorn.tend()"}[i%2]
		racers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := racer.conn.Exec(t.Context(), verb); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range hours {
		s.exec("update public.clock set now = now + interval '1 hour'")
		s.await("select not exists (select from posthorn.schedules where next_run_at <= posthorn.now())")
	}
	close(stop)
	racers.Wait()
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), hours*schedules)
	equal(t, "due times fired twice", value[int](s, `
		select count(*) from (
		  select from posthorn.events group by metadata->>'scheduledTaskId', metadata->>'scheduledFor' having count(*) > 1) x`), 0)
}

// A session that dies while it fires a schedule has fired nothing. Another one fires
// it, once.
//
// seed 000.16
func TestScheduleSurvivesDeathOfFiringSession(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.schedule("hourly", "once")
	s.clockAt("2026-01-01 01:00:00.1Z")
	doomed := s.another()
	doomed.exec("begin")
	equal(t, "fired by the doomed session", doomed.fire(), 1)
	s.exec("set lock_timeout = '30s'")
	equal(t, "fired by other sessions meanwhile, without waiting", s.fire(), 0)
	s.exec("select pg_terminate_backend($1)", int64(doomed.pid()))
	s.await("select not exists (select from pg_stat_activity where pid = $1 and datname = current_database())", int64(doomed.pid()))
	equal(t, "fired afterwards", s.fire(), 1)
	equal(t, "fired again", s.fire(), 0)
	equal(t, "events", s.fired(), []string{"2026-01-01T01:00:00Z"})
}

// seed 000.16: times that were missed are caught up according to the policy.
func TestScheduleCatchesUp(t *testing.T) {
	t.Parallel()
	for catchUp, want := range map[string][]string{
		"skip": {"2026-01-01T06:00:00Z"},
		"once": {"2026-01-01T01:00:00Z", "2026-01-01T06:00:00Z"},
		"all": {
			"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z",
			"2026-01-01T06:00:00Z",
		},
	} {
		t.Run(catchUp, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.clockAt("2026-01-01 00:30Z")
			s.schedule("hourly", catchUp)
			s.clockAt("2026-01-01 05:30Z") // no upkeep for five hours
			s.fire()
			equal(t, "again", s.fire(), 0)
			s.clockAt("2026-01-01 06:01Z") // late, but not missed
			s.fire()
			equal(t, "fired for", s.fired(), want)
		})
	}
}

// The next time of a period counts from the previous due time, not from the time of
// upkeep.
func TestSchedulePeriodDoesNotDrift(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:00Z")
	s.exec("select posthorn.schedule('default', 'p', '@every 10m', 'e', catch_up => 'once')")
	for _, moment := range []string{"00:10:05", "00:20:09", "01:02:03", "01:10:00"} {
		s.clockAt("2026-01-01 " + moment + "Z")
		s.fire()
	}
	equal(t, "fired for", s.fired(), []string{
		"2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z", "2026-01-01T00:30:00Z", "2026-01-01T01:10:00Z",
	})
}

// After a long outage schedules are caught up in steps, so that others do not wait.
func TestScheduleCatchesUpInSteps(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:00:30Z")
	s.exec("select posthorn.schedule('default', 'minutely', '* * * * *', 'e', catch_up => 'all')")
	s.schedule("hourly", "once")
	s.clockAt("2026-01-01 05:00:30Z")
	equal(t, "in one step", s.fire(), 101)
	steps := 1
	for s.fire() > 0 {
		steps++
	}
	equal(t, "steps", steps, 3)
	equal(t, "events", value[int](s, "select count(distinct metadata->>'scheduledFor') from posthorn.events where type = 'e'"), 300)
	equal(t, "a bound for all", value[int](s, "select posthorn.fire_schedules(0)"), 0)
}

func TestScheduleOfOneTimeCompletes(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:00Z")
	one := "select posthorn.schedule('default', 'one', '@at 2026-02-03T04:05:06Z', 'e')"
	s.exec(one)
	s.clockAt("2026-02-03 04:05:06Z")
	equal(t, "fired", s.fire(), 1)
	s.exec(one) // as a restarted program does
	equal(t, "fired again", s.fire(), 0)
	equal(t, "state", value[string](s, "select state from posthorn.schedules"), "completed")
	s.refused("PH004", "select posthorn.schedule('default', 'late', '@at 2026-02-03T04:05:06Z', 'e')")
	s.exec("select posthorn.schedule('default', 'one', '@at 2026-03-03T04:05:06Z', 'e')")
	equal(t, "state with another time", value[string](s, "select state from posthorn.schedules"), "active")
}

// An error is recorded on its schedule and retried later, and does not stop other
// schedules.
func TestScheduleThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.exec("select posthorn.schedule('default', 'bad', '@hourly', 'e', to_json(repeat('x', 5000)), catch_up => 'all')")
	s.schedule("good", "once")
	s.exec("update posthorn.config set value = '1024' where key = 'max_payload_bytes'")
	s.clockAt("2026-01-01 01:00:01Z")
	equal(t, "fired", s.fire(), 1)
	failing := "select concat_ws(' ', state, failures, last_error like '%larger than the limit%', next_run_at = '2026-01-01 01:00Z') from posthorn.schedules where name = 'bad'"
	equal(t, "failing", value[string](s, failing), "failing 1 t t")
	s.fire() // not retried yet
	equal(t, "failing", value[string](s, failing), "failing 1 t t")
	s.clockAt("2026-01-01 01:00:02Z")
	s.fire()
	equal(t, "failing", value[string](s, failing), "failing 2 t t")

	s.exec("update posthorn.config set value = '1048576' where key = 'max_payload_bytes'")
	s.clockAt("2026-01-01 02:30Z")
	equal(t, "fired when that was mended", s.fire(), 3)
	equal(t, "state", value[string](s, "select concat_ws(' ', state, failures, last_error) from posthorn.schedules where name = 'bad'"), "active 0")
	equal(t, "its due times", column[string](s, "select metadata->>'scheduledFor' from posthorn.events where type = 'e' order by id"),
		[]string{"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"})
}

// A schedule that a restarted program defines again keeps its next time, even if
// overdue, and stays paused if it was paused.
func TestScheduleSaidAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.schedule("hourly", "once")
	row := "select concat_ws(' ', task_id, next_run_at, updated_at, active) from posthorn.scheduled_tasks"
	before := value[string](s, row)
	s.clockAt("2026-01-01 03:30Z")
	s.schedule("hourly", "once")
	equal(t, "unchanged", value[string](s, row), before)
	s.schedule("hourly", "all")
	next := "select concat_ws(' ', to_char(next_run_at at time zone 'UTC', 'HH24:MI'), catch_up, active) from posthorn.scheduled_tasks"
	equal(t, "with another policy", value[string](s, next), "01:00 all t")
	s.exec("select posthorn.schedule('default', 'hourly', '15 * * * *', 'hour.struck')")
	equal(t, "with other times", value[string](s, next), "04:15 once t")
	s.exec("select posthorn.pause_schedule('default', 'hourly')")
	s.exec("select posthorn.schedule('default', 'hourly', '45 * * * *', 'hour.struck')")
	equal(t, "while paused", value[string](s, next), "once f")
	s.exec("select posthorn.schedule('default', 'hourly', '45 * * * *', 'hour.struck', active => true)")
	equal(t, "active on demand", value[string](s, next), "03:45 once t")
}

// Programs that start concurrently make one schedule.
func TestScheduleSaidByManyAtOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	first, second := s.another(), s.another()
	first.exec("begin")
	first.schedule("hourly", "once")
	outcome := second.background("select posthorn.schedule('default', 'hourly', '@hourly', 'hour.struck')")
	s.awaitBlocked(second)
	first.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "schedules", value[int](s, "select count(*) from posthorn.schedules"), 1)
}

// seed 000.60
func TestSchedulePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.schedule("hourly", "all")
	s.exec("select posthorn.pause_schedule('default', 'hourly'), posthorn.pause_schedule('default', 'hourly')")
	s.clockAt("2026-01-01 05:30Z")
	equal(t, "fired while paused", s.fire(), 0)
	if value[int64](s, "select posthorn.run_schedule_now('default', 'hourly')") == 0 {
		t.Error("a paused schedule does not run by hand")
	}
	s.exec("select posthorn.resume_schedule('default', 'hourly')")
	equal(t, "fired when resumed", s.fire(), 0)
	s.clockAt("2026-01-01 06:00Z")
	s.exec("select posthorn.resume_schedule('default', 'hourly')") // changes nothing
	s.fire()
	equal(t, "fired for", s.fired(), []string{"2026-01-01T05:30:00Z", "2026-01-01T06:00:00Z"})
	for _, verb := range []string{"pause_schedule", "resume_schedule", "run_schedule_now"} {
		s.refused("PH001", "select posthorn."+verb+"('default', 'nobody')")
		s.refused("PH001", "select posthorn."+verb+"('nowhere', 'hourly')")
	}
	s.refused("PH001", "select posthorn.schedule('nowhere', 'x', '@daily', 'e')")
}

// seed 000.62
func TestUnschedule(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.schedule("hourly", "once")
	s.exec("select posthorn.define_namespace('other')")
	equal(t, "in another namespace", value[bool](s, "select posthorn.unschedule('other', 'hourly')"), false)
	equal(t, "deleted", value[bool](s, "select posthorn.unschedule('default', 'hourly')"), true)
	equal(t, "deleted again", value[bool](s, "select posthorn.unschedule('default', 'hourly')"), false)
	s.clockAt("2026-01-01 05:30Z")
	equal(t, "fired", s.fire(), 0)
}

// seed 000.21
func TestRunScheduledTask(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.schedule("hourly", "once")
	task := value[string](s, "select task_id::text from posthorn.scheduled_tasks")
	s.clockAt("2026-01-01 00:45Z")
	run := func() bool {
		return value[bool](s, "select posthorn.run_scheduled_task($1::text::uuid) is not null", task)
	}
	equal(t, "published", run(), true)
	equal(t, "updated_at", value[bool](s, "select updated_at = posthorn.now() from posthorn.scheduled_tasks"), true)
	equal(t, "metadata", value[string](s, "select (metadata::jsonb - 'scheduledFor')::text from posthorn.events"),
		fmt.Sprintf(`{"producer": "scheduler", "scheduledTaskId": "%s"}`, task))
	// If the schedule is due, this run replaces the due one.
	s.clockAt("2026-01-01 01:00:01Z")
	equal(t, "published when due", run(), true)
	equal(t, "due afterwards", s.fire(), 0)
	equal(t, "fired for", s.fired(), []string{"2026-01-01T00:45:00Z", "2026-01-01T01:00:00Z"})

	s.exec("update posthorn.scheduled_tasks set active = false")
	equal(t, "published while inactive", run(), false)
	s.exec("delete from posthorn.scheduled_tasks")
	equal(t, "published when unknown", run(), false)
	equal(t, "events", len(s.fired()), 2)
}

// seed 000.61, 000.64: the event of a schedule is handled like any other, and the
// envelope names its schedule.
//
// seed 000.32
func TestScheduledEventsAreHandled(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.schedule("hourly", "once")
	s.turnClock(time.Hour)
	equal(t, "fired", s.fire(), 1)
	envelope := value[string](s, `
		select posthorn.event_envelope('default', e.event_id, e.type, e.payload, e.metadata, e.published_at, e.delivery)::text
		from posthorn.claim('default', $1, 'worker') e`, group)
	equal(t, "envelope", value[bool](s, `
		select $1::json->>'producerNodeId' = 'scheduler' and $1::json->>'eventType' = 'hour.struck'
		  and ($1::json->>'scheduledTaskId')::uuid = (select task_id from posthorn.scheduled_tasks)
		  and ($1::json->>'messageId')::bigint = (select id from posthorn.events)`, envelope), true)
	equal(t, "log", value[bool](s, "select scheduled_task_id = (select task_id from posthorn.scheduled_tasks) from posthorn.event_log"), true)
	s.expire()
	equal(t, "until it is settled", s.claim(1).Deliveries, []int{2})
}

// Writing to the table directly has the same effect, as seed 000 does.
//
// seed 000.16, seed 000.58–64
func TestScheduleByPlainStatements(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	s.exec(`insert into posthorn.scheduled_tasks (namespace, name, cron_expression, event_type, payload, timezone)
		values ('default', 'a', '0 * * * *', 'e', '{}', 'Asia/Kolkata')`)
	state := "select concat_ws(' ', active, to_char(next_run_at at time zone 'UTC', 'HH24:MI')) from posthorn.scheduled_tasks"
	equal(t, "planned", value[string](s, state), "t 01:30")
	s.exec("update posthorn.scheduled_tasks set active = false")
	equal(t, "paused", value[string](s, state), "f")
	for _, bad := range []string{
		"timezone = 'Mars'", "cron_expression = 'x'", "event_type = ''", "catch_up = 'never'", "name = ''", "metadata = '[]'", "stream = ''", "payload = null",
	} {
		if s.refused("PH004", "update posthorn.scheduled_tasks set "+bad).Message == "" {
			t.Error(bad)
		}
	}
	s.exec("delete from posthorn.scheduled_tasks")
}

// If nothing is due, upkeep reads only the index.
func TestScheduleUpkeepIsCheap(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.schedule('default', 's' || i, '@yearly', 'e') from generate_series(1, 300) i")
	s.exec("vacuum analyze posthorn.scheduled_tasks")
	plan := column[string](s, `explain (costs off)
		select x.* from posthorn.scheduled_tasks x
		where x.next_run_at is not null and greatest(x.next_run_at, x.not_before) <= $1
		order by greatest(x.next_run_at, x.not_before) limit 100
		for update skip locked`, time.Now())
	if !slices.ContainsFunc(plan, func(line string) bool {
		return line == "        ->  Index Scan using scheduled_tasks_due on scheduled_tasks x"
	}) {
		t.Errorf("plan: %q", plan)
	}
}

// A schedule enqueues its job once for each due time, with all that a job can have.
func TestScheduleEnqueuesItsJob(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.clockAt("2026-01-01 00:30Z")
	job := `{"title": "strike", "tags": ["bell"], "priority": 3, "payload": {"bell": 1}, "max_retries": 0, "metadata": {"a": 1}}`
	task := value[string](s, "select posthorn.schedule_job('default', 'hourly', '@hourly', $1::jsonb)::text", job)
	s.clockAt("2026-01-01 01:00Z")
	equal(t, "fired", s.fire(), 1)
	equal(t, "again", s.fire(), 0)
	equal(t, "job", value[string](s, `
		select concat_ws(' ', j.title, j.tags, j.priority, j.payload, j.max_retries, j.metadata::jsonb - 'scheduledTaskId', j.metadata->>'scheduledTaskId' = $1)
		from posthorn.jobs j`, task),
		`strike {bell} 3 {"bell": 1} 0 {"a": 1, "producer": "scheduler", "scheduledFor": "2026-01-01T01:00:00Z"} t`)
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
	equal(t, "the same again", value[string](s, "select posthorn.schedule_job('default', 'hourly', '@hourly', $1::jsonb)::text", job), task)
	equal(t, "as an event", value[string](s, "select posthorn.schedule('default', 'hourly', '@hourly', 'hour.struck')::text"), task)
	s.clockAt("2026-01-01 02:00Z")
	equal(t, "fired", s.fire(), 1)
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 1)
	equal(t, "jobs", value[int](s, "select count(*) from posthorn.jobs"), 1)
	for _, wrong := range []string{`{}`, `[]`, `{"title": ""}`, `{"title": "a", "tags": "x"}`, `{"title": "a", "colour": 1}`, `{"title": "a", "run_at": "2026-01-01"}`, `{"title": "a", "tags": ["a,b"]}`} {
		s.refused("PH004", "select posthorn.schedule_job('default', 'wrong', '@hourly', $1::jsonb)", wrong)
	}
}
