package guarantee

import (
	"slices"
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
		return !value[bool](other, tendInTurn, "expire_jobs")
	})
	await.True(t, "a call does what is due often, and leaves out the rest", func() bool {
		return value[bool](s, "select t ? 'expire_jobs' and not t ? 'sweep' from posthorn.tend(in_turn => true) t")
	})
	for _, part := range []string{"expire_jobs", "sweep"} {
		await.True(t, "a later call does "+part, func() bool { return value[bool](other, tendInTurn, part) })
	}
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
		return value[bool](s, "select t->>'wake_jobs' = 'busy' and not t ? 'expire_jobs' from posthorn.tend(in_turn => true) t")
	})
}

// tendBetween is what upkeep did in a turn between two rounds of all parts.
const tendBetween = "select posthorn.tend(in_turn => true)"

// turnsBetween gives each call of tend its turn, and none that of all parts, however slow the machine is.
const turnsBetween = `create or replace function posthorn.is_turn_to_tend(turns regclass, pause int, early int) returns boolean
	language sql return turns = 'posthorn.tend_from'::regclass`

// Between two rounds of all parts, upkeep does those that have something to do, and one that cannot know.
func TestUpkeepBetweenRoundsDoesWhatIsDue(t *testing.T) {
	t.Parallel()
	for part, prepare := range map[string]string{
		"":                "",
		"deliver_delayed": "select posthorn.publish('default', 'e', deliver_at => now() + interval '30 minutes')",
		"fire_schedules":  "select posthorn.schedule('default', 's', '@every 30m', 'e')",
		"promote_jobs":    "select posthorn.enqueue('default', 'j', run_at => now() + interval '30 minutes')",
		"settle_endings":  "insert into posthorn.job_endings (jobs) values ('{1}')",
		"wake_jobs":       "insert into posthorn.job_awaits (job, name, namespace_id, month, event_type, event_key, since, until, seq) select 1, 's', id, now(), 'e', 'k', now(), 'infinity', 0 from posthorn.namespaces where namespace = 'default'",
		"catch_up":        "insert into posthorn.stops (subscription_id, group_no, reached, upto) select x.id, x.group_no, c, c from posthorn.subscriptions x, posthorn.newest_cursor(x.group_no) c",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.subscribe("some", "{}")
			s.exec("select posthorn.tend()")
			s.exec(turnsBetween)
			want := []string{"expire_jobs"}
			if part != "" {
				s.exec(prepare)
				want = append(want, part)
			}
			s.turnClock(time.Hour)
			slices.Sort(want)
			equal(t, "done", column[string](s, "select jsonb_object_keys(("+tendBetween+")) order by 1"), want)
		})
	}
}

// A look that fails lets upkeep do all frequent parts, and the broken one says so.
func TestUpkeepBetweenRoundsShowsBrokenParts(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(turnsBetween)
	s.exec("alter table posthorn.delayed rename to hidden")
	equal(t, "errors", column[string](s, "select jsonb_object_keys(("+tendBetween+")->'errors')"), []string{"deliver_delayed"})
	equal(t, "the others are done", value[bool](s, "select ("+tendBetween+") ?& posthorn.frequent_upkeep_parts()"), true)
}
