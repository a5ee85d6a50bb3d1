package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

var fire = sql("select posthorn.fire_schedules()")

// Scheduled tasks that are due.
var due = []*schedule.Scenario{
	{
		Name: "fire", Promises: []int{7}, Model: promise.New(promise.Rules{}),
		Setup: []step{set("select posthorn.schedule('{ns}', 't', '* * * * *', 'tick', catch_up => 'all')::text as task")},
		Finally: `select 'promise 7: a task ran twice at ' || (e.metadata->>'scheduledFor') from posthorn.events e
			join posthorn.namespaces n on n.id = e.namespace_id where n.namespace = '{ns}' group by e.metadata->>'scheduledFor' having count(*) > 1
			union all select 'promise 7: a task did not run' from posthorn.namespaces n where n.namespace = '{ns}'
			and (select count(*) from posthorn.events e where e.namespace_id = n.id) < 2`,
		Drain: []step{fire}, Tidy: []string{"delete from posthorn.scheduled_tasks"},
		Sessions: []session{
			run("F1", wait(61*time.Second), begin, fire, commit, fire),
			run("F2", fire, begin, fire, rollback, wait(60*time.Second)),
			run("R", sql("select posthorn.run_scheduled_task('{task}', true)")),
		},
	},
}
