package op

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

var busyWorkers = Topic{"busy workers", "busy worker", "api-1"}

// mostBusy is how many jobs and leases are listed.
const mostBusy = 1000

var ListBusyWorkers = listAll(About{
	Topic: busyWorkers, SQL: "busy_workers", Command: "nodes busy", Page: "busy",
	Does: "List which worker runs which job or lease, and for how long",
	More: "Those that have lasted longest are first, up to a thousand. A job is stalled when its worker has sent no sign for 30 " +
		"seconds, and a lease when it is past its deadline. From the time in until on, other workers may take it.",
	Example: "posthorn nodes busy\nposthorn nodes busy --namespace shop --json",
	ByHand:  map[Face]string{Page: "it shows a hundred"},
}, func(a *admin.Admin, ctx context.Context) ([]admin.BusyWorker, error) {
	return a.BusyWorkers(ctx, mostBusy)
})
