package schedule

import (
	"context"
	"time"
)

// prepare replaces the clock by a sequence: it moves at once for all, whatever their
// snapshots. An unlogged one, since the others draw a transaction id at each move.
const prepare = `
create schema sched;
create unlogged sequence sched.clock;
create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe
return to_timestamp(pg_sequence_last_value('sched.clock'::regclass) / 1000.0);
create unlogged sequence sched.slow;
create function sched.took(interval) returns interval language sql volatile
return case pg_sequence_last_value('sched.slow'::regclass) when 2 then interval '100 milliseconds' else interval '0' end;` + pointSQL

// noon is when the clock of each database begins: the middle of a month, so that a schedule
// that needs the end of one says so.
var noon = time.Date(2030, 6, 15, 12, 0, 0, 0, time.UTC).UnixMilli()

// move moves the clock.
func (d *Driver) move(ctx context.Context, by time.Duration) error {
	d.clock += by.Milliseconds()
	_, err := d.control.Exec(ctx, "select setval('sched.clock', $1)", d.clock)
	return err
}
