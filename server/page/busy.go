package page

import (
	"context"
	"slices"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) busy() {
	p.screen(Screen{Path: "busy", Live: true, Show: showBusy})
}

// mostBusy bounds the jobs and leases that are shown.
const mostBusy = 100

// mostBusySearched bounds the jobs and leases among which those of a worker are looked for.
const mostBusySearched = 10_000

// busyPage has the jobs and leases that workers have.
type busyPage struct {
	Trouble string               // stalled, slow, or empty for all
	Worker  string               // whose work it is; empty for all
	Workers [][]admin.BusyWorker // the work of each
	More    bool                 // jobs or leases that were taken later
}

func showBusy(ctx context.Context, r *Request) (*View, error) {
	trouble, worker, most := r.Value("trouble"), r.Value("worker"), mostBusy+1
	if worker != "" {
		most = mostBusySearched
	}
	work, err := r.Admin.BusyWorkersInTrouble(ctx, trouble, most)
	work = slices.DeleteFunc(work, func(w admin.BusyWorker) bool { return worker != "" && w.Worker != worker })
	return &View{Title: "Busy", Data: busyPage{trouble, worker, byWorker(work[:min(len(work), mostBusy)]), len(work) > mostBusy}}, err
}

// byWorker cuts a list, in which the work of each worker stands together.
func byWorker(work []admin.BusyWorker) (workers [][]admin.BusyWorker) {
	for i, w := range work {
		if i == 0 || w.Worker != work[i-1].Worker {
			workers = append(workers, nil)
		}
		last := len(workers) - 1
		workers[last] = append(workers[last], w)
	}
	return workers
}
