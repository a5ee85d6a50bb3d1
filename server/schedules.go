package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type scheduleInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the schedule"`
}

type putScheduleInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the schedule"`
	Body struct {
		Cron     string                     `json:"cron_expression" doc:"Five fields, or @daily, @every 90s, @at 2026-12-01T08:00:00Z" example:"0 7 * * *"`
		Type     string                     `json:"event_type" doc:"Of the event" example:"report.due"`
		Payload  json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
		TimeZone string                     `json:"timezone,omitempty" doc:"Default: UTC" example:"Europe/Berlin"`
		CatchUp  string                     `json:"catch_up,omitempty" enum:"skip,once,all" doc:"What happens to times that were missed. Default: once"`
		Stream   string                     `json:"stream,omitempty" doc:"Default: default"`
		Key      string                     `json:"key,omitempty"`
		Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
		Active   *bool                      `json:"active,omitempty" doc:"Default: as it is; a new one is active"`
	}
}

type scheduleOutput struct{ Body admin.ScheduleStatus }

type idOutput struct {
	Body struct {
		ID int64 `json:"id" doc:"Of the event"`
	}
}

func (s *Server) schedules() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/schedules", id: "list-schedules", tag: "schedules",
		summary:     "Schedules",
		description: "Each with its cron expression, its event, and when it fires next.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.ScheduleStatus], error) {
		all, err := s.admin(c).Schedules(ctx)
		return page(visible(c, all, func(s admin.ScheduleStatus) string { return s.Stream }), ""), err
	})

	register(s, operation{
		method: http.MethodGet, path: "/v1/schedules/{name}", id: "get-schedule", tag: "schedules",
		summary:     "One schedule",
		description: "Its cron expression, its event, when it fired last, and when it fires next.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *scheduleInput) (*scheduleOutput, error) {
		return s.scheduleNamed(ctx, c, input.Name)
	})

	register(s, operation{
		method: http.MethodPut, path: "/v1/schedules/{name}", id: "put-schedule", tag: "schedules",
		summary:     "Make a schedule, or change it",
		description: "The body is the whole schedule: a field that it leaves out has its default, but active stays as it is.",
		scope:       scopeAdmin,
	}, s.putSchedule)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/schedules/{name}", id: "delete-schedule", tag: "schedules",
		summary:     "Delete a schedule",
		description: "Events that it has published stay in the log.",
		scope:       scopeAdmin, status: http.StatusNoContent,
	}, s.deleteSchedule)

	onSchedule := func(verb, summary string, do func(a *admin.Admin, ctx context.Context, name string) error) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/schedules/{name}/" + verb, id: verb + "-schedule", tag: "schedules",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "A second call changes nothing.",
		}, func(ctx context.Context, c caller, input *scheduleInput) (*struct{}, error) {
			if err := s.checkSchedule(ctx, c, input.Name); err != nil {
				return nil, err
			}
			return nil, do(s.admin(c), ctx, input.Name)
		})
	}
	onSchedule("pause", "Publish nothing until it is resumed", (*admin.Admin).PauseSchedule)
	onSchedule("resume", "Go on with the next time", (*admin.Admin).ResumeSchedule)

	register(s, operation{
		method: http.MethodPost, path: "/v1/schedules/{name}/run", id: "run-schedule", tag: "schedules",
		summary:     "Publish the event now; its times stay as they are",
		description: "The answer has the id of the event.",
		scope:       scopeAdmin,
	}, func(ctx context.Context, c caller, input *scheduleInput) (output *idOutput, err error) {
		if err := s.checkSchedule(ctx, c, input.Name); err != nil {
			return nil, err
		}
		output = &idOutput{}
		output.Body.ID, err = s.admin(c).RunScheduleNow(ctx, input.Name)
		return output, err
	})
}

func (s *Server) scheduleNamed(ctx context.Context, c caller, name string) (*scheduleOutput, error) {
	status, err := s.admin(c).Schedule(ctx, name)
	if err == nil && !c.mayRead(status.Stream) {
		err = noSchedule(c, name)
	}
	return &scheduleOutput{status}, err
}

// checkSchedule keeps callers from schedules that publish to streams which they
// may not read: as if there were none.
func (s *Server) checkSchedule(ctx context.Context, c caller, name string) error {
	if len(c.hidden) == 0 {
		return nil
	}
	_, err := s.scheduleNamed(ctx, c, name)
	return err
}

func (s *Server) putSchedule(ctx context.Context, c caller, input *putScheduleInput) (*scheduleOutput, error) {
	b := input.Body
	if err := c.checkPublish(cmp.Or(b.Stream, "default")); err != nil {
		return nil, err
	}
	// A name that is taken in a stream which it may not read is not its to change.
	if there, err := s.admin(c).Schedule(ctx, input.Name); err == nil && !c.mayRead(there.Stream) {
		return nil, noSchedule(c, input.Name)
	}
	schedule := admin.Schedule{
		Name: input.Name, Cron: b.Cron, Type: b.Type, Payload: b.Payload, TimeZone: b.TimeZone, CatchUp: b.CatchUp,
		Stream: b.Stream, Key: b.Key, Active: b.Active,
	}
	if b.Metadata != nil {
		var err error
		if schedule.Metadata, err = json.Marshal(b.Metadata); err != nil {
			return nil, err
		}
	}
	if _, err := s.admin(c).DefineSchedule(ctx, schedule); err != nil {
		return nil, err
	}
	return s.scheduleNamed(ctx, c, input.Name)
}

func (s *Server) deleteSchedule(ctx context.Context, c caller, input *scheduleInput) (*struct{}, error) {
	if err := s.checkSchedule(ctx, c, input.Name); err != nil {
		return nil, err
	}
	was, err := s.admin(c).Unschedule(ctx, input.Name)
	if err == nil && !was {
		err = noSchedule(c, input.Name)
	}
	return nil, err
}

// noSchedule says of a schedule that is hidden from the caller that there is none.
func noSchedule(c caller, name string) error {
	return notFound(fmt.Sprintf("schedule '%s' does not exist in namespace %s", name, c.namespace), "See: posthorn schedules list")
}
