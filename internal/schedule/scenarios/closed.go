package scenarios

import (
	"slices"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

var (
	closeIt = step{Op: promise.Close{}, SQL: "select posthorn.close_namespace('{ns}', 'elsewhere')"}
	quiet   = step{Op: promise.Quiet{}, SQL: "select posthorn.await_closed('{ns}', '0')"}
	openIt  = step{Op: promise.Open{}, SQL: "select posthorn.open_namespace('{ns}')"}
)

// Namespaces that are closed, since they move to another database.
var closed = []*schedule.Scenario{
	{
		Name: "close", Promises: []int{2, 16}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", publish("e1", ""), merge), Drain: append([]step{openIt}, drainGroup...), Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("C", begin, closeIt, commit, quiet, quiet, quiet),
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("R", repeat, sql("select 1"), publish("r1", ""), commit),
			run("W", begin, claim("w", 1), commit, settle),
		},
	},
	{
		Name: "close-streams", Promises: []int{2, 16}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: slices.Concat([]step{openIt, merge}, drainGroup), Tidy: dropGroup,
		Finally: emptyGroup + ` union all select 'a stream is not plain' from posthorn.stream_names s where s.namespace = '{ns}' and not s.plain`,
		Sessions: []session{
			run("C", closeIt, quiet, quiet),
			run("A", begin, publishInto("s", "a1"), commit, publishInto("s", "a2")),
			run("B", publishInto("s", "b1"), publishInto("s", "b2")),
			run("M", begin, merge, commit),
		},
	},
	{
		Name: "close-group", Promises: []int{16}, Model: promise.New(promise.Rules{}),
		Setup: []step{publish("e1", "")}, Drain: []step{openIt, claim("drain", 100), settle}, Tidy: dropGroup,
		Sessions: []session{
			run("C", closeIt, quiet, quiet),
			run("G", begin, sql(`select posthorn.define_group('{ns}', 'g', '{"start": "beginning"}')`), commit),
			run("W", claim("w", 1), settle, claim("w", 1), settle),
		},
	},
	{
		Name: "close-jobs", Promises: []int{9, 16}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", "")}, Drain: append([]step{openIt}, drainJobs...), Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("C", closeIt, quiet, quiet, openIt),
			run("E", begin, enqueue("B", ""), commit),
			run("W", begin, claimJobs("w", 1), commit, complete("w")),
			run("V", claimJobs("v", 1), complete("v")),
		},
	},
}
