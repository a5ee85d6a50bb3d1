package guarantee

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/schema"
)

// A standby is promoted that has replayed the installation and has written none of it to its disk: Postgres has lost the
// first pages of its unlogged sequences. All goes on there, upkeep has its turns again, and a dump can be made.
func TestPromotionRightAfterTheInstallation(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, map[string]string{"shared_buffers": "128MB", "checkpoint_timeout": "1d"})
	standby := primary.Standby(t, "standby")
	conn, err := pgx.Connect(t.Context(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	before := connect(t, primary.URL())
	relay := before.relay(first)
	hint := `insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until)
		select id, 'x', 0, now(), 0, 1, now() from posthorn.namespaces`
	before.exec(hint)
	last := before.publish()
	standby.AwaitReceived(t, primary)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)

	s := connect(t, standby.URL())
	known{"event": s.publish()}.wantAbove(t, "after the promotion", known{"event": last})
	s.refused("PH003", "select posthorn.take_relay($1, $2, $3, 10, '1 minute', gen_random_uuid())", relay.group, relay.owner, relay.epoch)
	again := s.relay(first)
	again.take(10)
	id := s.job("{x}")
	s.exec(hint)
	equal(t, "jobs", s.claimJobs("w", "{x}", 1), []int64{id})
	equal(t, "errors of upkeep", value[string](s, "select coalesce(posthorn.tend(in_turn => true)->'errors', '{}')::text"), "{}")
	equal(t, "why numbers moved", value[string](s, "select string_agg(reason, ' ') from posthorn.moves"), "promotion")
	other := s.another()
	await.True(t, "a call leaves the upkeep to the one before", func() bool {
		s.exec("select posthorn.tend(in_turn => true)")
		return value[bool](other, tendInTurn, "skipped")
	})
	s.exec("checkpoint")
	equal(t, "timeline of the checkpoint", value[int](s, "select timeline_id from pg_control_checkpoint()"), 2)
	testpg.Dump(t, standby.URL())
}
