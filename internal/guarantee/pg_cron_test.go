package guarantee

import (
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/testpg/pgcron"
	"github.com/posthorn/posthorn/schema"
)

// TestPgCron runs the tests that need pg_cron sequentially, since pg_cron works in
// one database of a server.
//
// seed 000.58, seed 000.59
func TestPgCron(t *testing.T) {
	t.Parallel()
	server := pgcron.Start(t)
	for name, test := range map[string]func(t *testing.T, s *session, restart func() *session){
		"FiresSchedules":      pgCronFiresSchedules,
		"JobsFollowSchedules": pgCronJobsFollowSchedules,
		"FiresOnce":           pgCronFiresOnce,
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, server.URL())
			s.exec("drop extension if exists pg_cron; drop schema if exists posthorn cascade; set search_path = public; create extension pg_cron; set search_path = ''")
			if _, err := schema.Migrate(t.Context(), s.conn, schema.Options{}); err != nil {
				t.Fatal(err)
			}
			test(t, s, func() *session {
				server.Restart(t)
				return connect(t, server.URL())
			})
		})
	}
}

// Postgres alone, without any node, fires schedules by pg_cron and by upkeep, and
// does the rest of upkeep. The jobs run at a restart of the server instead of each
// minute, and Posthorn's clock is two minutes ahead.
//
// seed 000.58–64, seed 000.1–6
func pgCronFiresSchedules(t *testing.T, s *session, restart func() *session) {
	s.exec("select posthorn.use_pg_cron()")
	s.exec("select posthorn.schedule('default', 'by job', '* * * * *', 'a')")
	s.exec("select posthorn.schedule('default', 'by upkeep', '@every 1m', 'b')")
	s.exec("select posthorn.publish('default', 'c', deliver_at => posthorn.now() + interval '1 minute')")
	equal(t, "schedules of the jobs", column[string](s, "select distinct schedule from cron.job"), []string{"* * * * *"})
	s.turnClock(2 * time.Minute)
	s.exec("select cron.alter_job(jobid, schedule => '@reboot') from cron.job")
	s = restart()
	for _, kind := range []string{"a", "b", "c"} {
		s.await("select exists (select from posthorn.events where type = '" + kind + "')")
	}
	equal(t, "due times fired twice", value[int](s, `
		select count(*) from (
		  select from posthorn.events where type <> 'c' group by type, metadata->>'scheduledFor' having count(*) > 1) x`), 0)
	equal(t, "the job's event is for a full minute", value[bool](s,
		"select bool_and(metadata->>'scheduledFor' like '%:00Z') from posthorn.events where type = 'a'"), true)
}

// seed 000.58, seed 000.59, seed 000.60, seed 000.62, seed 000.63
func pgCronJobsFollowSchedules(t *testing.T, s *session, _ func() *session) {
	jobs := func() []string {
		return column[string](s, "select concat_ws(' | ', jobname, schedule, command) from cron.job order by jobid")
	}
	task := func(name string) string {
		return value[string](s, "select task_id::text from posthorn.schedules where name = $1", name)
	}
	job := func(name, cron string) string {
		return "default_" + name + "_" + task(name) + " | " + cron + " | select posthorn.run_scheduled_task('" + task(name) + "', true)"
	}
	// One schedule from before, some that pg_cron does not support, and a long name.
	s.exec("select posthorn.schedule('default', 'before', '5 4 * * *', 'e')")
	s.exec("select posthorn.use_pg_cron(), posthorn.use_pg_cron()")
	s.exec(`select posthorn.schedule('default', 'zone', '5 4 * * *', 'e', timezone => 'Europe/Berlin'),
		posthorn.schedule('default', 'every', '@every 1 day', 'e'), posthorn.schedule('default', 'one', '@at 2999-01-01T00:00Z', 'e')`)
	long := strings.Repeat("ü", 100)
	s.exec("select posthorn.schedule('default', $1, '@daily', 'e')", long)
	found := jobs()
	equal(t, "jobs", found[:2], []string{"posthorn_tend_posthorn | * * * * * | select posthorn.tend()", job("before", "5 4 * * *")})
	if len(found) != 3 || !strings.Contains(found[2], task(long)+" | @daily") {
		t.Errorf("jobs %q, want one with the whole id %s", found, task(long))
	}
	equal(t, "fired by pg_cron", column[string](s, "select name from posthorn.schedules where fired_by = 'pg_cron' order by name"), []string{"before", long})
	equal(t, "job_id", value[bool](s, `select t.job_id = j.jobid from posthorn.scheduled_tasks t join cron.job j on j.jobname like 'default_before%'
		where t.name = 'before'`), true)

	s.exec("select posthorn.unschedule('default', $1)", long)
	s.exec("select posthorn.schedule('default', 'before', '6 4 * * *', 'e')")
	equal(t, "jobs after a change", jobs()[1:], []string{job("before", "6 4 * * *")})
	s.exec("select posthorn.pause_schedule('default', 'before')")
	equal(t, "jobs while paused", len(jobs()), 1)
	s.exec("select posthorn.resume_schedule('default', 'before')")
	equal(t, "jobs when resumed", jobs()[1:], []string{job("before", "6 4 * * *")})
	s.exec("select posthorn.schedule('default', 'before', '6 4 * * *', 'e', timezone => 'Europe/Berlin')")
	equal(t, "jobs with a time zone", len(jobs()), 1)
	s.exec("select posthorn.schedule('default', 'before', '6 4 * * *', 'e')")
	s.exec("select posthorn.use_pg_cron(false)")
	equal(t, "jobs without pg_cron", len(jobs()), 0)
	equal(t, "fired by pg_cron", value[int](s, "select count(*) from posthorn.schedules where fired_by = 'pg_cron'"), 0)

	// The extension is dropped, and schedules keep firing.
	s.exec("select posthorn.use_pg_cron()")
	s.exec("drop extension pg_cron")
	s.exec("select posthorn.schedule('default', 'before', '7 4 * * *', 'e')")
	s.exec("select posthorn.unschedule('default', 'before')")
}

// Upkeep leaves a schedule to its pg_cron job for two minutes and then fires it. A
// job that runs later fires nothing twice.
func pgCronFiresOnce(t *testing.T, s *session, _ func() *session) {
	s.clockAt("2026-01-01 00:30Z")
	s.exec("select posthorn.use_pg_cron()")
	s.exec("select cron.alter_job(jobid, active => false) from cron.job") // the test controls the time
	s.schedule("hourly", "all")
	s.exec("select cron.alter_job(jobid, active => false) from cron.job")
	run := func() {
		s.exec(value[string](s, "select command from cron.job where jobname like 'default_%'"))
	}
	s.clockAt("2026-01-01 01:00:01Z")
	equal(t, "fired by upkeep", s.fire(), 0)
	run()
	run()
	equal(t, "fired for", s.fired(), []string{"2026-01-01T01:00:00Z"})
	s.clockAt("2026-01-01 02:01:59Z")
	equal(t, "fired by upkeep, early", s.fire(), 0)
	s.clockAt("2026-01-01 02:02:00Z")
	equal(t, "fired by upkeep, in the end", s.fire(), 1)
	run()
	s.clockAt("2026-01-01 05:30:00Z")
	equal(t, "made up for by upkeep", s.fire(), 3)
	run()
	equal(t, "fired for", len(s.fired()), 5)
}
