package scenarios

import (
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

var plan = sql("select events, segments from posthorn.plan_archive({a})")

// write is the work of an archiver at one segment.
func write(n int) []step {
	return []step{
		{Op: promise.Claim{}, Takes: true, SQL: fmt.Sprintf(`select u.first_id, l.attempt, e.event_id from posthorn.lease_archive_stream({a}, 'h-%d-0badcafe', '30 seconds') l
			cross join lateral posthorn.unwritten_segment({a}, l.stream_id) u cross join lateral posthorn.segment_events({a}, l.stream_id, u.first_id) e order by 3`, n)},
		{Op: promise.Settle{}, SQL: fmt.Sprintf(`select posthorn.finish_segment({a}, s.stream_id, 'archiver-default-h-%d-0badcafe', {attempt}, {lease}, 1, 'sum', 1, posthorn.now(), posthorn.now(), null, '0')
			from posthorn.archive_streams s where s.archive_id = {a}`, n)},
	}
}

// Archives: each event is in one segment, which one process writes.
var archives = []*schedule.Scenario{
	{
		Name: "archive", Promises: []int{10}, Model: promise.New(promise.Rules{}),
		Setup: []step{set(`select archive as a from posthorn.define_archive('{ns}', 'g', 'file:///nowhere', '{"segment_age": "0"}')`), publish("e1", ""), publish("e2", ""), plan},
		Drain: append([]step{plan}, write(3)...),
		Finally: `select 'a segment is left' from posthorn.archive_segments s where s.archive_id = {a} and s.written_at is null
			union all select 'the number of segments is wrong' from posthorn.archive_streams s where s.archive_id = {a} and s.unwritten <> 0`,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit, plan, plan),
			run("P", begin, plan, commit, plan),
			run("W1", write(1)...),
			run("W2", append(write(2), write(2)...)...),
			run("T", wait(31*time.Second)),
		},
	},
}
