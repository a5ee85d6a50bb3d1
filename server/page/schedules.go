package page

import (
	"context"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) schedules() {
	p.screen(Screen{Path: "schedules", Live: true, Show: listSchedules})
	p.screen(Screen{Path: "schedule", Under: "schedules", Live: true, Show: showSchedule})
	for _, o := range []op.Any{op.PauseSchedule, op.ResumeSchedule, op.RunSchedule} {
		p.operation(o, nil)
	}
	p.operation(op.PutSchedule, func(r *Request) string { return r.Link("schedule", "name", r.Value("name")) })
	p.operation(op.DeleteSchedule, func(r *Request) string { return r.Link("schedules") })
}

func listSchedules(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Schedules(ctx)
	return &View{Title: "Schedules", Data: all}, err
}

func showSchedule(ctx context.Context, r *Request) (*View, error) {
	in := &op.ByName{Name: r.Value("name")}
	s, err := op.GetSchedule.Call(ctx, r.Admin, in)
	return &View{Title: "Schedule " + s.Name, Data: s}, err
}
