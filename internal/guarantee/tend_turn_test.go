package guarantee

import (
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
		return !value[bool](other, tendInTurn, "deliver_delayed")
	})
	await.True(t, "a call does what is due often, and leaves out the rest", func() bool {
		return value[bool](s, "select t ? 'deliver_delayed' and not t ? 'sweep' from posthorn.tend(in_turn => true) t")
	})
	for _, part := range []string{"deliver_delayed", "sweep"} {
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
		return value[bool](s, "select t->>'wake_jobs' = 'busy' and not t ? 'deliver_delayed' from posthorn.tend(in_turn => true) t")
	})
}
