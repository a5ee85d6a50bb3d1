package inflow_test

import "testing"

// Of what a stream had, the newest 200,000 are known, and the rest goes: also
// after nobody swept for hours, and when what was written last is older than that.
func TestSeenIsSwept(t *testing.T) {
	for name, age := range map[string]string{"just now": "0", "while nobody swept": "3 hours"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exec("select posthorn.sweep()")
			w.exec("update posthorn.cluster set swept_at = swept_at - $1::interval - interval '2 minutes'", age)
			w.exec(`insert into posthorn.source_seen (group_id, stream, ids, at)
				select 1, s, array(select generate_series(n * 1000 + 1, n * 1000 + 1000)), posthorn.now() - $1::interval
				from unnest(array['a', 'b']) s, generate_series(1, case s when 'a' then 250 else 150 end) n`, age)
			before := ask[int](w, "select cardinality(posthorn.seen_in_source(1, 'a'))")
			w.exec("select posthorn.sweep()")
			for stream, want := range map[string]int{"a": 200, "b": 150} {
				if got := ask[int](w, "select count(*) from posthorn.source_seen where stream = $1", stream); got != want {
					t.Errorf("%d rows of stream %s are left, want %d", got, stream, want)
				}
			}
			if after := ask[int](w, "select cardinality(posthorn.seen_in_source(1, 'a'))"); after != before {
				t.Errorf("%d events are known after the sweep, and were %d", after, before)
			}
			w.exec("update posthorn.source_seen set at = at - interval '1 day'")
			w.exec("update posthorn.cluster set swept_at = swept_at - interval '1 hour'")
			w.exec("select posthorn.sweep()")
			if got := ask[int](w, "select count(*) from posthorn.source_seen"); got != 0 {
				t.Errorf("%d rows are left after a day", got)
			}
		})
	}
}
