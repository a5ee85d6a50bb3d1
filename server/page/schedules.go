package page

import (
	"context"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// nextTimes is how many times of a schedule its page shows.
const nextTimes = 10

func (p *Pages) schedules() {
	p.screen(Screen{Path: "schedules", Live: true, Show: listSchedules})
	p.screen(Screen{Path: "schedule", Under: "schedules", Live: true, Show: showSchedule})
	for verb, done := range map[string]string{"pause": "is paused", "resume": "goes on", "run": "has published its event"} {
		p.action(Action{Path: "schedule/" + verb, Do: func(ctx context.Context, r *Request) (string, string, error) {
			name := r.Value("name")
			err := r.Call(ctx, http.MethodPost, "/v1/schedules/"+segment(name)+"/"+verb, nil, nil)
			return "", "Schedule " + name + " " + done + ".", err
		}})
	}
}

func listSchedules(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Schedules(ctx)
	return &View{Title: "Schedules", Data: all}, err
}

func showSchedule(ctx context.Context, r *Request) (*View, error) {
	s, err := r.Admin.Schedule(ctx, r.Value("name"))
	if err != nil {
		return nil, err
	}
	var next []time.Time
	if s.State == "active" || s.State == "failing" {
		next, err = r.Admin.NextRuns(ctx, s.Cron, s.TimeZone, time.Time{}, nextTimes)
	}
	return &View{Title: "Schedule " + s.Name, Data: struct {
		Schedule admin.ScheduleStatus
		Next     []time.Time
	}{s, next}}, err
}
