package guarantee

import "testing"

// nextRuns lists the next due times of a cron expression after a moment, in UTC.
func (s *session) nextRuns(cron, zone, after string, howMany int) []string {
	s.t.Helper()
	return column[string](s, `
		select to_char(r at time zone 'UTC', 'YYYY-MM-DD HH24:MI')
		from posthorn.next_runs($1, $2, $3::text::timestamptz, $4) r`, cron, zone, after+"Z", howMany)
}

type cronCase struct {
	cron  string
	after string // UTC
	want  []string
}

func (s *session) wantRuns(zone string, cases []cronCase) {
	s.t.Helper()
	for _, c := range cases {
		equal(s.t, c.cron+" after "+c.after+" in "+zone, s.nextRuns(c.cron, zone, c.after, len(c.want)), c.want)
	}
}

func TestCronFields(t *testing.T) {
	t.Parallel()
	database(t).wantRuns("UTC", []cronCase{
		{"* * * * *", "2026-01-01 00:00", []string{"2026-01-01 00:01", "2026-01-01 00:02"}},
		{"* * * * *", "2026-12-31 23:59:59.9", []string{"2027-01-01 00:00"}},
		{"*/20 * * * *", "2026-01-01 00:00", []string{"2026-01-01 00:20", "2026-01-01 00:40", "2026-01-01 01:00"}},
		{"5,10-12 23 * * *", "2026-01-01 23:10", []string{"2026-01-01 23:11", "2026-01-01 23:12", "2026-01-02 23:05"}},
		{"0 1-9/4 * * *", "2026-01-01 02:00", []string{"2026-01-01 05:00", "2026-01-01 09:00", "2026-01-02 01:00"}},
		{"30 8 * * mon-fri", "2026-01-02 09:00", []string{"2026-01-05 08:30", "2026-01-06 08:30"}},
		{"0 0 * * fri-sun", "2026-01-01 00:00", []string{"2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00", "2026-01-09 00:00"}},
		{"0 0 * * 0", "2026-01-01 00:00", []string{"2026-01-04 00:00", "2026-01-11 00:00"}},
		{"0 0 * * 7", "2026-01-01 00:00", []string{"2026-01-04 00:00", "2026-01-11 00:00"}},
		{"0 0 1 JAN,Jul *", "2026-01-01 00:00", []string{"2026-07-01 00:00", "2027-01-01 00:00"}},
		{"0 0 31 * *", "2026-01-31 00:00", []string{"2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"}},
		{"0 0 30,31 2-4 *", "2026-01-31 00:00", []string{"2026-03-30 00:00", "2026-03-31 00:00", "2026-04-30 00:00", "2027-03-30 00:00"}},
		{"0 0 29 2 *", "2026-01-01 00:00", []string{"2028-02-29 00:00", "2032-02-29 00:00"}},
		{"0 0 29 2 *", "2096-03-01 00:00", []string{"2104-02-29 00:00"}}, // 2100 is not a leap year
		// A day of the month or a day of the week: either matches, unless one of them
		// is *.
		{"0 0 13 * fri", "2026-01-01 00:00", []string{"2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00", "2026-01-16 00:00"}},
		{"0 0 31 2 mon", "2026-01-01 00:00", []string{"2026-02-02 00:00", "2026-02-09 00:00"}},
		{"0 0 */2 * mon", "2026-01-01 00:00", []string{"2026-01-05 00:00", "2026-01-19 00:00", "2026-02-09 00:00"}},
		{"0 0 29 2 */7", "2026-01-01 00:00", []string{"2032-02-29 00:00", "2060-02-29 00:00"}},
		{"  0   0 1 1  * ", "2026-01-01 00:00", []string{"2027-01-01 00:00"}},
		{"@hourly", "2026-01-01 00:00", []string{"2026-01-01 01:00", "2026-01-01 02:00"}},
		{"@daily", "2026-01-01 00:00", []string{"2026-01-02 00:00"}},
		{"@weekly", "2026-01-01 00:00", []string{"2026-01-04 00:00"}},
		{"@monthly", "2026-01-01 00:00", []string{"2026-02-01 00:00"}},
		{"@yearly", "2026-01-01 00:00", []string{"2027-01-01 00:00"}},
		{"@every 90s", "2026-01-01 00:00", []string{"2026-01-01 00:01", "2026-01-01 00:03", "2026-01-01 00:04"}},
		{"@every 1 hour 30 minutes", "2026-01-01 00:00", []string{"2026-01-01 01:30", "2026-01-01 03:00"}},
		{"@every 1h30m", "2026-01-01 00:00", []string{"2026-01-01 01:30", "2026-01-01 03:00"}},
		{"@every 2 days", "2026-01-01 00:00", []string{"2026-01-03 00:00"}},
	})
}

// A single time is due only once.
func TestCronOneTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, c := range []struct{ cron, zone, want string }{
		{"@at 2026-12-01T08:00:00Z", "Europe/Berlin", "2026-12-01 08:00"},
		{"@at 2026-12-01T08:00:00+05:30", "Europe/Berlin", "2026-12-01 02:30"},
		{"@at 2026-12-01 08:00", "Europe/Berlin", "2026-12-01 07:00"},
		{"@at 2026-12-01 08:00", "UTC", "2026-12-01 08:00"},
		{"@at 2026-03-29 02:30", "Europe/Berlin", "2026-03-29 01:00"}, // skipped by the clock: due right after the gap
		{"@at 2026-10-25 02:30", "Europe/Berlin", "2026-10-25 00:30"}, // occurs twice: due the first time
	} {
		equal(t, c.cron+" in "+c.zone, s.nextRuns(c.cron, c.zone, "2026-01-01 00:00", 5), []string{c.want})
		equal(t, c.cron+" afterwards", s.nextRuns(c.cron, c.zone, c.want, 5), []string{})
	}
}

// In Berlin the clock skips 02:00–03:00 on 29 March 2026, and repeats that hour on 25
// October.
//
// seed 000.58–64: time zone per schedule with correct DST
func TestCronInBerlin(t *testing.T) {
	t.Parallel()
	database(t).wantRuns("Europe/Berlin", []cronCase{
		{"0 8 * * *", "2026-03-28 00:00", []string{"2026-03-28 07:00", "2026-03-29 06:00"}},
		{"0 8 * * *", "2026-10-24 00:00", []string{"2026-10-24 06:00", "2026-10-25 07:00"}},

		// A fixed time in the gap is due right after it, and several such times are
		// due once.
		{"30 2 * * *", "2026-03-27 12:00", []string{"2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"0 2 * * *", "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-30 00:00"}},
		{"0,30 2 * * *", "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-30 00:00", "2026-03-30 00:30"}},
		{"30 2,3 * * *", "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:30"}},
		{"0 2,3 * * *", "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-30 00:00", "2026-03-30 01:00"}},
		{"59 1 * * *", "2026-03-28 12:00", []string{"2026-03-29 00:59", "2026-03-29 23:59"}},
		// A time that occurs twice is due the first time.
		{"30 2 * * *", "2026-10-24 12:00", []string{"2026-10-25 00:30", "2026-10-26 01:30"}},
		{"0 2 * * *", "2026-10-24 12:00", []string{"2026-10-25 00:00", "2026-10-26 01:00"}},
		{"59 2 * * *", "2026-10-24 12:00", []string{"2026-10-25 00:59", "2026-10-26 01:59"}},
		{"0 3 * * *", "2026-10-24 12:00", []string{"2026-10-25 02:00", "2026-10-26 02:00"}},
		{"30 2,3 * * *", "2026-10-24 12:00", []string{"2026-10-25 00:30", "2026-10-25 02:30", "2026-10-26 01:30"}},
		// The same when counting from between the two.
		{"30 2 * * *", "2026-10-25 00:45", []string{"2026-10-26 01:30"}},
		{"50 2 * * *", "2026-10-25 01:45", []string{"2026-10-26 01:50"}},

		// * is due in every hour that passes.
		{"30 * * * *", "2026-03-29 00:00", []string{"2026-03-29 00:30", "2026-03-29 01:30", "2026-03-29 02:30"}},
		{"@hourly", "2026-03-29 00:00", []string{"2026-03-29 01:00", "2026-03-29 02:00", "2026-03-29 03:00"}},
		{"30 * * * *", "2026-10-24 23:00", []string{"2026-10-24 23:30", "2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"}},
		{"*/30 * * * *", "2026-10-25 00:15", []string{"2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"}},
		{"* * * * *", "2026-10-25 00:58", []string{"2026-10-25 00:59", "2026-10-25 01:00", "2026-10-25 01:01"}},
		{"* * * * *", "2026-03-29 00:58", []string{"2026-03-29 00:59", "2026-03-29 01:00", "2026-03-29 01:01"}},
		{"*/30 2 * * *", "2026-03-28 12:00", []string{"2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:00"}},
		{"@every 1h", "2026-10-25 00:00", []string{"2026-10-25 01:00", "2026-10-25 02:00", "2026-10-25 03:00"}},
	})
}

// On Lord Howe the clock changes by half an hour: it skips 02:00–02:30 on 4 October
// 2026, and repeats 01:30–02:00 on 5 April.
//
// seed 000.63
func TestCronOnLordHowe(t *testing.T) {
	t.Parallel()
	database(t).wantRuns("Australia/Lord_Howe", []cronCase{
		{"15 2 * * *", "2026-10-02 12:00", []string{"2026-10-02 15:45", "2026-10-03 15:30", "2026-10-04 15:15"}},
		{"15,45 2 * * *", "2026-10-03 12:00", []string{"2026-10-03 15:30", "2026-10-03 15:45", "2026-10-04 15:15"}},
		{"0 3 * * *", "2026-10-03 12:00", []string{"2026-10-03 16:00", "2026-10-04 16:00"}},
		{"45 1 * * *", "2026-04-03 12:00", []string{"2026-04-03 14:45", "2026-04-04 14:45", "2026-04-05 15:15"}},
		{"15 1 * * *", "2026-04-04 12:00", []string{"2026-04-04 14:15", "2026-04-05 14:45"}},
		{"45 1 * * *", "2026-04-04 15:00", []string{"2026-04-05 15:15"}}, // counted from between the two

		{"15 * * * *", "2026-10-03 14:00", []string{"2026-10-03 14:45", "2026-10-03 15:45", "2026-10-03 16:15", "2026-10-03 17:15"}},
		{"*/10 * * * *", "2026-10-03 15:15", []string{"2026-10-03 15:20", "2026-10-03 15:30", "2026-10-03 15:40"}},
		{"45 * * * *", "2026-04-04 13:00", []string{"2026-04-04 13:45", "2026-04-04 14:45", "2026-04-04 15:15", "2026-04-04 16:15"}},
		{"*/10 * * * *", "2026-04-04 14:45", []string{"2026-04-04 14:50", "2026-04-04 15:00", "2026-04-04 15:10"}},
		{"15,30 * * * *", "2026-10-03 15:01", []string{"2026-10-03 15:30", "2026-10-03 15:45", "2026-10-03 16:15"}},
	})
}

// In zones with unusual clock changes, a daily schedule is due every day, and an
// hourly one every hour. When the clock goes back by half an hour, the time from
// 01:07 to 02:07 is an hour and a half.
func TestCronMissesNoDay(t *testing.T) {
	t.Parallel()
	s := database(t)
	for zone, clock := range map[string]struct {
		hour    string   // longest time between two full hours
		changes []string // days before a clock change, in UTC
	}{
		"America/New_York":    {"1 hour", []string{"2026-03-06", "2026-10-30"}},
		"Africa/Cairo":        {"1 hour", []string{"2026-04-22", "2026-10-28"}},
		"Pacific/Chatham":     {"1 hour", []string{"2026-04-02", "2026-09-24"}},
		"Antarctica/Troll":    {"1 hour", []string{"2026-03-27", "2026-10-23"}},
		"Africa/Casablanca":   {"1 hour", []string{"2026-02-13", "2026-03-20"}},
		"Australia/Lord_Howe": {"90 minutes", []string{"2026-04-02", "2026-10-01"}},
	} {
		for _, before := range clock.changes {
			equal(t, "changes in "+zone+" after "+before, value[bool](s, `
				select ($2::text || 'Z')::timestamptz at time zone $1 - ($2::text || 'Z')::timestamptz at time zone 'UTC'
					<> (($2::text || 'Z')::timestamptz + interval '4 days') at time zone $1 - (($2::text || 'Z')::timestamptz + interval '4 days') at time zone 'UTC'`,
				zone, before), true)
			for _, cron := range []string{"30 0 * * *", "30 2 * * *"} {
				equal(t, cron+" in "+zone+": days without a run", value[int](s, `
					select count(*)
					from (select r, lag(r) over (order by n) as last
					      from posthorn.next_runs($1, $2, ($3::text || 'Z')::timestamptz, 7) with ordinality x (r, n)) x
					where r - last not between '21:00' and '27:00'`, cron, zone, before), 0)
			}
			equal(t, "hours without a run in "+zone, value[int](s, `
				select count(*)
				from (select r, lag(r) over (order by n) as last
				      from posthorn.next_runs('7 * * * *', $1, ($3::text || 'Z')::timestamptz, 100) with ordinality x (r, n)) x
				where r - last not between '1 minute' and $2::text::interval`, zone, clock.hour, before), 0)
		}
	}
}

func TestCronRefusesNonsense(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, cron := range []string{
		"", "x", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 8",
		"-1 * * * *", "5- * * * *", "9-5 * * * *", "*/0 * * * *", "*/90 * * * *", "5/10 * * * *", ", * * * *", "1,,2 * * * *", "* * * foo *", "* * * * jan",
		"* * L * *", "? * * * *", "1.5 * * * *", "99999999999 * * * *", "0 0 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *",
		"@reboot", "@every", "@every x", "@every 0s", "@every -5s", "@every 100ms", "@every 1.5s", "@every 1 month", "@every 2 years", "@every 1000 days",
		"@at", "@at now", "@at tomorrow", "@at 2026-13-01T00:00Z", "@at 2026-12-01", "@at 08:00", "@at infinity", "30 seconds",
	} {
		if s.refused("PH004", "select posthorn.next_run($1)", cron).Hint == "" {
			t.Errorf("%q: no hint", cron)
		}
	}
	s.refused("PH004", "select posthorn.next_run(null)")
	for _, zone := range []string{"", "Mars/Olympus", "CEST", "Europe/Berlin5", "UTC+3", "+02:00", "x'y"} {
		s.refused("PH004", "select posthorn.next_run('@daily', $1)", zone)
	}
	s.refused("PH004", "select posthorn.next_run('@daily', null)")
	equal(t, "after all time", value[bool](s, "select posthorn.next_run('@daily', after => 'infinity') is null"), true)
}
