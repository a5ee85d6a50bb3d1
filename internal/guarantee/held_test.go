package guarantee

import "testing"

func TestHeldTransactionDoesNotBlockClaims(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"snapshot":      "begin isolation level repeatable read; select count(*) from posthorn.events",
		"xid":           "begin; select pg_current_xact_id()",
		"publisher":     "begin; select posthorn.publish('default', 'never')",
		"reader":        "begin; select * from posthorn.leases, posthorn.cursors, posthorn.groups, posthorn.retries",
		"other claimer": "begin; select posthorn.claim('default', 'other', 'w')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			s.exec("select posthorn.define_group('default', 'other')")
			s.publish()
			s.drain()
			holder := s.another()
			holder.exec(sql)

			s.exec("set statement_timeout = '10s'; set lock_timeout = '1s'")
			for range 5 {
				event := s.publish()
				wantEvents(t, s.drain(), event)
			}
			s.exec("select posthorn.tend()")
		})
	}
}

func TestClaimsAreRefusedAboveReadCommitted(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			for _, sql := range []string{
				"select posthorn.claim('default', 'billing', 'w')",
				"select posthorn.take(g.id, 'w', 10, '1 minute', gen_random_uuid()) from posthorn.groups g",
				"select posthorn.seek('default', 'billing', 'infinity')",
				"select posthorn.read_events('default', posthorn.cursor_at('infinity'))",
			} {
				s.exec("begin isolation level " + level)
				s.refused("PH005", sql)
				s.exec("rollback")
			}
		})
	}
}

func TestPublishingWorksAtEveryLevel(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		s.exec("begin isolation level " + level)
		id := s.publish()
		s.exec("commit")
		wantEvents(t, s.drain(), id)
	}
}
