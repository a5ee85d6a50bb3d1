package guarantee

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

const tendInTurn = "select posthorn.tend(in_turn => true) ? $1"

// Of several processes one does the upkeep, and the others do nothing then.
func TestUpkeepIsDoneByOneForAll(t *testing.T) {
	t.Parallel()
	s := database(t)
	other := s.another()
	await.True(t, "a call leaves the upkeep to the one before", func() bool {
		s.exec("select posthorn.tend(in_turn => true)")
		return value[bool](other, "select posthorn.tend(in_turn => true) = '{\"skipped\": true, \"wake_jobs\": null}'")
	})
	await.True(t, "a call does what is due often, and leaves out the rest", func() bool {
		return value[bool](s, "select t ? 'expire_jobs' and not t ? 'maintain_events_table_if_due' from posthorn.tend(in_turn => true) t")
	})
	await.True(t, "a later call does what is due often", func() bool { return value[bool](other, tendInTurn, "expire_jobs") })
	s.exec("select setval('posthorn.tend_all_from', 1)") // ten seconds later
	await.True(t, "a later call does the rest", func() bool {
		return value[bool](other, tendInTurn, "maintain_events_table_if_due")
	})
	equal(t, "a call without a turn does all", value[bool](s, "select posthorn.tend() ?& posthorn.upkeep_parts()"), true)
}

// A clock that is set back does not stop the upkeep.
func TestUpkeepGoesOnThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	inAnHour := time.Now().Add(time.Hour).UnixMilli()
	s.exec("select setval('posthorn.tend_from', $1), setval('posthorn.tend_all_from', $1)", inAnHour)
	equal(t, "all is done", value[bool](s, "select posthorn.tend(in_turn => true) ?& posthorn.upkeep_parts()"), true)
}

// A process that leaves the upkeep to another one learns that jobs wait for events.
func TestAllLearnThatJobsWaitForEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.awaits()
	await.True(t, "a call leaves the upkeep to the one before", func() bool {
		s.exec("select posthorn.tend(in_turn => true)")
		return value[bool](s, "select posthorn.tend(in_turn => true) = '{\"skipped\": true, \"wake_jobs\": \"busy\"}'")
	})
}

// tendBetween is what upkeep did in a turn between two rounds of all parts.
const tendBetween = "select posthorn.tend(in_turn => true)"

// turnsBetween gives each call of tend its turn, and none that of all parts, however slow the machine is.
const turnsBetween = `create or replace function posthorn.is_turn_to_tend(turns regclass, pause int, early int) returns boolean
	language sql return turns = 'posthorn.tend_from'::regclass`

// Between two rounds of all parts, upkeep does those that have something to do, and leaves out those that may wait.
func TestUpkeepBetweenRoundsDoesWhatIsDue(t *testing.T) {
	t.Parallel()
	for part, prepare := range map[string]string{
		"":                "",
		"deliver_delayed": "select posthorn.publish('default', 'e', deliver_at => now() + interval '30 minutes')",
		"fire_schedules":  "select posthorn.schedule('default', 's', '@every 30m', 'e')",
		"promote_jobs":    "select posthorn.enqueue('default', 'j', run_at => now() + interval '30 minutes')",
		"settle_endings":  "insert into posthorn.job_endings (jobs) values ('{1}')",
		"wake_jobs":       "insert into posthorn.job_awaits (job, name, namespace_id, month, event_type, event_key, since, until, seq) select 1, 's', id, now(), 'e', 'k', now(), 'infinity', 0 from posthorn.namespaces where namespace = 'default'",
		"tick":            "select posthorn.publish('default', 'e')",
		"merge_streams":   "select posthorn.publish('default', 'e', stream => 'new')",
		"notice_restore":  "set posthorn.session = ''",
		"catch_up":        "insert into posthorn.stops (subscription_id, group_no, reached, upto) select x.id, x.group_no, c, c from posthorn.subscriptions x, posthorn.newest_cursor(x.group_no) c",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.subscribe("some", `{"expiry_interval": "30 minutes"}`)
			s.exec("select posthorn.tend()")
			s.exec(turnsBetween)
			want := []string{}
			done := "select part from jsonb_object_keys((" + tendBetween + ")) part where part not in ('look_again', 'expire_jobs', 'news') order by 1"
			if part == "" {
				equal(t, "done at once", column[string](s, done), want)
			} else {
				s.exec(prepare)
				want = append(want, part)
			}
			if strings.Contains(prepare, "posthorn.publish") {
				want = append(want, "tick") // an id of an event was drawn
			}
			s.turnClock(time.Hour)
			slices.Sort(want)
			equal(t, "done", column[string](s, done), slices.Compact(want))
		})
	}
}

// look_again says itself when the next one is due.
func TestUpkeepLooksAgainWhenThatIsDue(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.tend()")
	s.exec(turnsBetween)
	for _, test := range []struct {
		in   time.Duration
		want bool
	}{{9 * time.Second, false}, {0, true}, {time.Hour, true}} { // the last one: the clock was set back
		s.exec("select setval('posthorn.look_again_from', $1)", time.Now().Add(test.in).UnixMilli())
		equal(t, "it looks, in "+test.in.String(), value[bool](s, tendBetween+" ? 'look_again'"), test.want)
	}
}

// Upkeep looks for expired jobs once a second, whatever its other parts do.
func TestUpkeepLooksForExpiredJobsOnceASecond(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(turnsBetween)
	for _, call := range []struct {
		at   string
		want bool
	}{{"12:00:00", true}, {"12:00:00.999", false}, {"12:00:01", true}, {"12:00:01.5", false}, {"11:00:00", true}} { // the last one: the clock was set back
		s.exec("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return timestamptz '2100-01-01 " + call.at + "Z'")
		equal(t, "it looks at "+call.at, value[bool](s, tendBetween+" ? 'expire_jobs'"), call.want)
	}
}

// A look that fails lets upkeep do all parts that may be frequent, and the broken one says so.
func TestUpkeepBetweenRoundsShowsBrokenParts(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(turnsBetween)
	s.exec("alter table posthorn.delayed rename to hidden")
	equal(t, "errors", column[string](s, "select jsonb_object_keys(("+tendBetween+")->'errors')"), []string{"deliver_delayed"})
	equal(t, "left out", column[string](s, "select unnest(posthorn.upkeep_parts()) except select jsonb_object_keys(("+tendBetween+"))"), []string{"maintain_events_table_if_due"})
}
