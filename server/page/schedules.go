package page

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) schedules() {
	p.screen(Screen{Path: "schedules", Live: true, Show: listSchedules})
	p.screen(Screen{Path: "schedule", Under: "schedules", Live: true, Show: showSchedule})
	for _, o := range []op.Any{op.PauseSchedule, op.ResumeSchedule, op.RunSchedule} {
		p.operation(o, nil)
	}
	p.screen(Screen{Path: "schedule/put", Under: "schedules", Scope: "admin", Show: p.askSchedule})
	p.action(Action{Path: "schedule/put", Do: putSchedule})
	p.operation(op.DeleteSchedule, func(r *Request) string { return r.Link("schedules") })
}

// plannedSchedule is a schedule with the meaning of its cron expression.
type plannedSchedule struct {
	admin.ScheduleStatus
	Words string
}

func listSchedules(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Schedules(ctx)
	planned := make([]plannedSchedule, len(all))
	for i, s := range all {
		planned[i] = plannedSchedule{s, op.CronInWords(s.Cron)}
	}
	return &View{Title: "Schedules", Data: planned}, err
}

func showSchedule(ctx context.Context, r *Request) (*View, error) {
	in := &op.ByName{Name: r.Value("name")}
	s, err := op.GetSchedule.Call(ctx, r.Admin, in)
	return &View{Title: "Schedule " + s.Name, Data: struct {
		op.ScheduleDetails
		Words string
	}{s, op.CronInWords(s.Cron)}}, err
}

// scheduleForm is the form of a schedule. It uses the fields of Event or those of Job.
type scheduleForm struct {
	Named, Name    string // of a schedule that exists, and in the field
	Cron, TimeZone string
	When           when
	IsJob          bool
	Event, Job     []formField
	CatchUp        string
	CatchUps       []parameter
}

// when is the meaning of a cron expression, or the error of the database that refuses it.
type when struct {
	Words         string
	TimeZone      string
	Next          []time.Time
	Problem, Hint string
}

// catchUps are the choices for times that were missed.
var catchUps = []parameter{{"once", "Once for all of them"}, {"skip", "Not at all"}, {"all", "Once for each of them"}}

// eventParts are the fields of a schedule that are about its event.
var eventParts = map[string]bool{"event_type": true, "payload": true, "stream": true, "key": true, "metadata": true}

// jobPrefix begins the names of the fields of the job: those of the event have some of the same names.
const jobPrefix = "job_"

// notOfSchedules are fields of a new job that a schedule decides, or that are about a job of today.
var notOfSchedules = map[string]bool{"run_at": true, "after": true}

// askSchedule shows the form of a schedule: of one that exists, or of a new one with the parameters. The script asks for
// it with another cron expression, for its meaning.
func (p *Pages) askSchedule(ctx context.Context, r *Request) (*View, error) {
	var in op.PutScheduleInput
	if err := r.Fill(&in); err != nil {
		return nil, err
	}
	form := scheduleForm{CatchUps: catchUps}
	if in.Name != "" && in.Body.Cron == "" {
		form.Named = in.Name
		if err := op.PutSchedule.Load(ctx, r.Admin, &in); err != nil {
			return nil, err
		}
	}
	b := &in.Body
	form.Name, form.Cron, form.TimeZone, form.CatchUp, form.IsJob = in.Name, b.Cron, b.TimeZone, b.CatchUp, len(b.Job) > 0
	for _, f := range op.Fields(&in) {
		if eventParts[f.Name] {
			form.Event = append(form.Event, formField{f, f.Text(), kindOf(f)})
		}
	}
	var job admin.NewJob
	if form.IsJob {
		// SQL takes periods as numbers, too, and a job that comes after others.
		if err := json.Unmarshal(b.Job, &job); err != nil || len(job.After) > 0 || !job.RunAt.IsZero() {
			return nil, &Problem{
				Status: http.StatusConflict, Detail: "the job of this schedule has a field that the form cannot show",
				Hint: "Change it as it was made: by a program, in SQL or over HTTP.",
			}
		}
	}
	for _, f := range op.Fields(&job) {
		if !notOfSchedules[f.Name] {
			f.Form = jobPrefix + f.Form
			form.Job = append(form.Job, formField{f, f.Text(), kindOf(f)})
		}
	}
	form.When = p.whenIs(ctx, r, form.Cron, form.TimeZone)
	title := "Make a schedule"
	if form.Named != "" {
		title = "Change schedule " + form.Named
	}
	return &View{Title: title, Template: "schedule_form.html", Data: form}, nil
}

const nextShown = 5

func (p *Pages) whenIs(ctx context.Context, r *Request, cron, timeZone string) (w when) {
	if cron == "" {
		return w
	}
	if timeZone == "" {
		timeZone = "UTC"
	}
	next, err := r.Admin.NextRuns(ctx, cron, timeZone, time.Time{}, nextShown)
	if err != nil {
		problem := p.Door.Problem(ctx, err)
		return when{Problem: problem.Detail, Hint: problem.Hint}
	}
	if len(next) == 0 {
		return when{Problem: "It never runs again.", Hint: "Its time has passed."}
	}
	words := op.CronInWords(cron)
	if words != "" {
		words = sentence(words)
	}
	return when{Words: words, TimeZone: timeZone, Next: next}
}

func putSchedule(ctx context.Context, r *Request) (to, done string, err error) {
	var in op.PutScheduleInput
	if err := r.Fill(&in); err != nil {
		return "", "", err
	}
	if r.Value("kind") == "job" {
		var job admin.NewJob
		err = op.Fill(&job, func(name string) string { return r.Value(jobPrefix + name) }, r.Time)
		if err != nil {
			return "", "", err
		}
		b := &in.Body
		b.Type, b.Payload, b.Stream, b.Key, b.Metadata = "", nil, "", "", nil
		if b.Job, err = json.Marshal(job); err != nil {
			return "", "", err
		}
	}
	out, err := op.PutSchedule.Call(ctx, r.Admin, &in)
	if err != nil {
		return "", "", err
	}
	return r.Link("schedule", "name", in.Name), sentence(op.PutSchedule.Done(&in, out)) + ".", nil
}
