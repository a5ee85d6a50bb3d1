package op

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

var busyWorkers = Topic{"busy workers", "busy worker", "api-1"}

// mostBusy is how many jobs and leases are listed.
const mostBusy = 1000

// ListBusyWorkersInput says which work is listed.
type ListBusyWorkersInput struct {
	Namespace
	Trouble string `query:"trouble" flag:"trouble" page:"trouble" enum:"stalled,slow" doc:"Only stalled jobs and leases, or only slow jobs. Default: all"`
}

var ListBusyWorkers = Op[ListBusyWorkersInput, []admin.BusyWorker]{About: About{
	Topic: busyWorkers, Verb: "list", Scope: Read, SQL: "busy_work", Command: "nodes busy", Page: "busy",
	Does: "List which worker runs which job or lease, and for how long",
	More: "Those of one worker are together, and those first that have lasted longest, up to a thousand. A job is stalled when its worker has sent no heartbeat " +
		"for 30 seconds, and a lease when it is past its deadline. A job is slow when it has run for more than a minute and for more than " +
		"ten times as long as 95 of 100 jobs with its tag take. From the time in until on, other workers may take it.",
	Example: "posthorn nodes busy\nposthorn nodes busy --trouble slow\nposthorn nodes busy --namespace shop --json",
	ByHand:  map[Face]string{Page: "it shows a hundred"},
}, Call: func(ctx context.Context, a *admin.Admin, in *ListBusyWorkersInput) ([]admin.BusyWorker, error) {
	return a.BusyWorkersInTrouble(ctx, in.Trouble, mostBusy)
}}
