package scenarios

import (
	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func publishInto(stream, label string) step {
	return step{Op: promise.Publish{Label: label, Plain: true}, SQL: "select posthorn.publish('{ns}', '" + label + "', stream => '" + stream + "')"}
}

func policy(level string) step {
	return step{Op: promise.Policy{Confidential: level == "confidential"}, SQL: "select posthorn.set_stream_policy('{ns}', 's', '" + level + "')"}
}

var merge = sql("select posthorn.merge_streams()")

// Streams that come into being, and those that are confidential.
var streams = []*schedule.Scenario{
	{
		Name: "streams", Promises: []int{1, 2}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: append([]step{merge}, drainGroup...), Tidy: dropGroup,
		Finally: emptyGroup + ` union all select 'a stream has ' || count(*) || ' names' from posthorn.stream_names s where s.namespace = '{ns}' and s.name = 's' having count(*) <> 1`,
		Sessions: []session{
			run("A", begin, publishInto("s", "a1"), commit, publishInto("s", "a2")),
			run("B", begin, publishInto("s", "b1"), commit),
			run("M", begin, merge, commit),
			run("W", claim("w", 10), settle, merge, claim("w", 10), settle),
		},
	},
	{
		Name: "seal", Promises: []int{11}, Model: promise.New(promise.Rules{}),
		Setup: []step{publishInto("s", "e1")},
		Sessions: []session{
			run("P", begin, policy("confidential"), commit, policy("open")),
			run("M", begin, merge, commit),
			run("A", publishInto("s", "a1"), publishInto("s", "a2")),
			run("B", begin, publishInto("s", "b1"), commit),
		},
	},
}
