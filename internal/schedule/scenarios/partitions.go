package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

var maintain = sql("select action, partition, detail from posthorn.maintain_events_table()")

// Partitions that come and go.
var partitions = []*schedule.Scenario{
	{
		Name: "partitions", Promises: []int{2, 6}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: group("{}", sql("update posthorn.config set value = '10 minutes' where key = 'partition_retention_period'"), sql("select posthorn.maintain_events_table()")),
		Drain: drainGroup, Finally: emptyGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit),
			run("T", wait(20*24*time.Hour), publish("t1", "")),
			run("M", maintain, maintain),
			run("W", claim("w", 1), settle, begin, claim("w", 10), settle, commit),
		},
	},
	{
		// Events that have failed, or are with a worker, are owed after the period.
		Name: "retention", Promises: []int{2, 6}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: group("{}", sql("update posthorn.config set value = '10 minutes' where key = 'partition_retention_period'"), sql("select posthorn.maintain_events_table()"), publish("e1", ""), publish("e2", "")),
		Drain: drainGroup, Finally: emptyGroup,
		Sessions: []session{
			run("W1", claim("w1", 1), fail, maintain),
			run("W2", claim("w2", 10), wait(20*24*time.Hour), maintain),
			run("A", begin, publish("a1", ""), commit),
		},
	},
}
