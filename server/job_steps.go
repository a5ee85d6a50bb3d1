package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/server/internal/in"
)

type stepBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	Name   string          `json:"name" maxLength:"255" doc:"Of the step, within its job" example:"charge"`
	Result json.RawMessage `json:"result,omitempty" doc:"Any JSON, up to 64 KiB"`
}

// savedStepView is a step of a job, as it is saved.
type savedStepView struct {
	ID     int64           `json:"id" example:"1001"`
	Name   string          `json:"name" example:"charge"`
	Result json.RawMessage `json:"result"`
}

func (s *Server) saveJobStep(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[savedStepView], error) {
	body, job, err := readReport[stepBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	saved, err := pg.SaveStep(ctx, s.client.Pool(), job, body.Name, body.Result)
	return &bodyOf[savedStepView]{savedStepView{job.ID, body.Name, saved}}, err
}

type sleepBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	Name     string  `json:"name" maxLength:"255" doc:"Of the sleep, within its job: it is one of the steps" example:"cool down"`
	SleepFor *period `json:"sleep_for" doc:"The time until the job goes on"`
}

// sleepView is a sleep of a job.
type sleepView struct {
	ID      int64      `json:"id" example:"1001"`
	Name    string     `json:"name" example:"cool down"`
	Over    bool       `json:"over" doc:"true: the attempt goes on. false: it has ended"`
	WakesAt *time.Time `json:"wakes_at,omitempty" doc:"When the job can be claimed again, if the sleep is not over"`
}

func (s *Server) sleepJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[sleepView], error) {
	body, job, err := readReport[sleepBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	if body.SleepFor == nil {
		return nil, badRequest("sleep_for is missing", `Give the time until the job goes on, such as "24h".`)
	}
	until, err := pg.SleepJob(ctx, s.client.Pool(), job, body.Name, time.Duration(*body.SleepFor))
	return &bodyOf[sleepView]{sleepView{job.ID, body.Name, until == nil, utc(valueOf(until))}}, err
}

type awaitBody struct {
	_ struct{} `additionalProperties:"true"`
	in.Worker
	Name    string  `json:"name" maxLength:"255" doc:"Of the wait, within its job: it is one of the steps" example:"paid"`
	Type    string  `json:"type" maxLength:"255" doc:"The type of the event" example:"payment.settled"`
	Key     string  `json:"key" maxLength:"255" doc:"The key of the event" example:"order-17"`
	Timeout *period `json:"timeout" doc:"The time after which the job goes on without the event"`
}

// awaitedView is what has become of a job's wait for an event.
type awaitedView struct {
	ID         int64      `json:"id" doc:"The job" example:"1001"`
	Name       string     `json:"name" example:"paid"`
	Event      *eventView `json:"event,omitempty" doc:"The event that has come: the attempt goes on"`
	TimedOut   bool       `json:"timed_out" doc:"true: none has come in time, and the attempt goes on"`
	WaitsUntil *time.Time `json:"waits_until,omitempty" doc:"Given if the attempt has ended: the job waits until the event comes, and until then at most"`
}

func (s *Server) awaitEvent(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[awaitedView], error) {
	body, job, err := readReport[awaitBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	if !c.may(scopeConsume) && !c.may(scopeRead) {
		return nil, newProblem(http.StatusForbidden, "the token lacks the scope read", "Use a token that has it: a wait returns the event.")
	}
	if body.Timeout == nil {
		return nil, badRequest("timeout is missing", `Give the time after which the job goes on without the event, such as "168h".`)
	}
	came, err := pg.AwaitEvent(ctx, s.client.Pool(), job, pg.Await{
		Name: body.Name, Type: body.Type, Key: body.Key, Timeout: time.Duration(*body.Timeout), Hidden: c.hidden,
	})
	if err != nil {
		return nil, err
	}
	view := awaitedView{ID: job.ID, Name: body.Name, TimedOut: came.TimedOut, WaitsUntil: utc(valueOf(came.WaitsUntil))}
	if came.EventID != 0 {
		if view.Event, err = s.openAwaited(ctx, c, came.Event()); err != nil {
			return nil, err
		}
	}
	return &bodyOf[awaitedView]{view}, nil
}

// openAwaited opens an event that a job has waited for. An earlier attempt may have got it whose token
// saw more.
func (s *Server) openAwaited(ctx context.Context, c caller, e pg.Event) (*eventView, error) {
	if slices.Contains(c.hidden, e.Stream) {
		return nil, newProblem(http.StatusForbidden, "the event is of a restricted stream that the token does not name",
			"Use a token that names it: an earlier attempt at the job had one.")
	}
	err := s.box.Open(ctx, c.namespace, &e)
	if err != nil && !sealing.IsFinal(err) {
		s.box.LogUnopened(c.namespace, e.Stream, err)
		return nil, newProblem(http.StatusServiceUnavailable, "the event is of a confidential stream, and cannot be opened now",
			"Ask again. The server's log has the cause; the server needs the keeper of the stream.").withCause(err)
	}
	view := viewOfRead(e, err != nil)
	return &view, nil
}

type jobStepsView struct {
	Steps []admin.JobStep `json:"steps"`
}

func (s *Server) jobSteps(ctx context.Context, c caller, input *in.ByID) (*bodyOf[jobStepsView], error) {
	steps, err := s.admin(c).JobSteps(ctx, input.ID)
	for i := range steps {
		steps[i].SavedAt, steps[i].WakesAt = steps[i].SavedAt.UTC(), steps[i].WakesAt.UTC()
	}
	return &bodyOf[jobStepsView]{jobStepsView{steps}}, err
}
