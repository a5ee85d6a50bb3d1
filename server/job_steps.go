package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
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
	EventID int64           `json:"event_id" example:"1001"`
	Name    string          `json:"name" example:"charge"`
	Result  json.RawMessage `json:"result"`
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
	Name     string `json:"name" maxLength:"255" doc:"Of the sleep, within its job: it is one of the steps" example:"cool down"`
	SleepFor period `json:"sleep_for" doc:"The time until the job goes on"`
}

// sleepView is a sleep of a job.
type sleepView struct {
	EventID int64      `json:"event_id" example:"1001"`
	Name    string     `json:"name" example:"cool down"`
	Over    bool       `json:"over" doc:"true: the attempt goes on. false: it has ended"`
	WakesAt *time.Time `json:"wakes_at,omitempty" doc:"When the job can be claimed again, if the sleep is not over"`
}

func (s *Server) sleepJob(ctx context.Context, c caller, input *jobBodyInput) (*bodyOf[sleepView], error) {
	body, job, err := readReport[sleepBody](ctx, c, input)
	if err != nil {
		return nil, err
	}
	if body.SleepFor == 0 {
		return nil, badRequest("sleep_for is missing", `Give the time until the job goes on, such as "24h".`)
	}
	until, err := pg.SleepJob(ctx, s.client.Pool(), job, body.Name, time.Duration(body.SleepFor))
	return &bodyOf[sleepView]{sleepView{job.ID, body.Name, until == nil, utc(valueOf(until))}}, err
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
