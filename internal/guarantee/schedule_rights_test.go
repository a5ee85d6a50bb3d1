package guarantee

import "testing"

// A publisher may let a schedule publish what it may publish by hand, and not look at the
// schedules of others, pause them or run them.
func TestPublishersMayDefineSchedules(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("set role posthorn_publisher")
	for _, call := range []string{
		"schedule('default', 'nightly', '@daily', 'a')", "schedule_job('default', 'report', '@daily', '{\"title\": \"a\"}')",
		"next_run('@daily')", "next_runs('@daily')", "unschedule('default', 'report')",
	} {
		s.exec("select posthorn." + call)
	}
	for _, call := range []string{
		"pause_schedule('default', 'nightly')", "resume_schedule('default', 'nightly')", "run_schedule_now('default', 'nightly')",
		"run_scheduled_task(null)", "fire_schedules()", "use_pg_cron()",
	} {
		s.refused("42501", "select posthorn."+call)
	}
	s.refused("42501", "select from posthorn.schedules")
	s.exec("reset role; set role posthorn_consumer")
	s.refused("42501", "select posthorn.schedule('default', 'mine', '@daily', 'a')")
	s.refused("42501", "select posthorn.unschedule('default', 'nightly')")
}

// A schedule is refused to a publisher where publishing the same event is.
func TestSchedulesAreRefusedAsPublishingIs(t *testing.T) {
	t.Parallel()
	s := clinic(t)
	s.exec("select posthorn.set_stream_policy('default', 'payroll', 'restricted')")
	s.exec("set role posthorn_publisher")
	for stream, code := range map[string]string{"patients": "PH005", "": "PH004", "payroll": "", "default": ""} {
		for _, sql := range []string{
			"select posthorn.publish('default', 'a', '{}'::json, stream => $1)", "select posthorn.schedule('default', 'x', '@daily', 'a', '{}', stream => $1)",
		} {
			if code == "" {
				s.exec(sql, stream)
			} else {
				s.refused(code, sql, stream)
			}
		}
	}
	s.refused("PH001", "select posthorn.schedule('nowhere', 'x', '@daily', 'a')")
	s.refused("PH004", "select posthorn.schedule('default', 'x', '@daily', '')")
	s.refused("PH004", "select posthorn.schedule_job('default', 'x', '@daily', '{\"title\": \"\"}')")
}
