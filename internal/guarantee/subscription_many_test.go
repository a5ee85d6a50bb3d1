package guarantee

import "testing"

// Ten thousand events meet four conditions with a thousand subscriptions each: every
// event is handed to exactly the four subscriptions that want it. seed 001.28
func TestTenThousandEventsAndFourThousandSubscriptions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`insert into posthorn.subscriptions (group_id, conditions_sql, params)
		select $1, c, jsonb_build_object('room', 'room.' || i % 1000)
		from unnest(array[
			's.params @> jsonb_build_object(''room'', e.topic)',
			's.params @> jsonb_build_object(''room'', e.type) and e.key is null',
			's.params @> jsonb_build_object(''room'', e.payload->>''room'')',
			's.params->>''room'' = e.type']) c
		cross join generate_series(1, 1000) i`, group)
	s.exec(`select posthorn.publish_batch('default', array_agg('room.' || i % 1000), array_agg(json_build_object('room', 'room.' || i % 1000)))
		from generate_series(1, 10000) i`)
	equal(t, "compiled", value[int](s, "select count(*) from posthorn.conditions"), 4)

	s.exec("create temporary table handed (event_id bigint, type text, subscription text)")
	for more := true; more; {
		more = value[int](s, `
			with taken as (select c.* from posthorn.claim('default', $1, 'worker', 1000) c),
				kept as (insert into pg_temp.handed select t.event_id, t.type, unnest(t.subscriptions) from taken t)
			select count(*) from taken`, group) > 0
		s.exec("select posthorn.settle(l.id, l.attempt) from posthorn.leases l")
	}
	equal(t, "matches", value[int](s, "select count(*) from pg_temp.handed"), 40_000)
	equal(t, "events with their own four", value[int](s, `
		select count(*) from (
			select h.event_id from pg_temp.handed h
			join (select s.name, s.params->>'room' as room from posthorn.subscriptions s offset 0) s on s.name = h.subscription and s.room = h.type
			group by h.event_id having count(*) = 4) x`), 10_000)
}
