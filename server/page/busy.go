package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) busy() {
	p.screen(Screen{Path: "busy", Live: true, Show: showBusy})
}

// mostBusy bounds the jobs and leases that are shown.
const mostBusy = 100

// busyPage has the jobs and leases that workers have.
type busyPage struct {
	Trouble string // stalled, slow, or empty for all
	Work    []admin.BusyWorker
	More    bool // jobs or leases that were taken later
}

func showBusy(ctx context.Context, r *Request) (*View, error) {
	trouble := r.Value("trouble")
	work, err := r.Admin.BusyWorkersInTrouble(ctx, trouble, mostBusy+1)
	return &View{Title: "Busy", Data: busyPage{trouble, work[:min(len(work), mostBusy)], len(work) > mostBusy}}, err
}
