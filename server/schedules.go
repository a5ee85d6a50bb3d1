package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type putScheduleInput struct {
	in.ByName
	Body struct {
		Cron     string                     `json:"cron_expression" doc:"Five fields, or @daily, @every 90s, @at 2026-12-01T08:00:00Z" example:"0 7 * * *"`
		Type     string                     `json:"event_type,omitempty" doc:"The type of the event; required without job" example:"report.due"`
		Payload  json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
		TimeZone string                     `json:"timezone,omitempty" doc:"Default: UTC" example:"Europe/Berlin"`
		CatchUp  string                     `json:"catch_up,omitempty" enum:"skip,once,all" doc:"How often the event is published for times that were missed. Default: once"`
		Stream   string                     `json:"stream,omitempty" doc:"Default: default"`
		Key      string                     `json:"key,omitempty"`
		Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
		Job      json.RawMessage            `json:"job,omitempty" doc:"Enqueued instead of an event: an object with title, payload, tags, priority, max_retries, retry_delays, unique_key, unique_for, description and metadata"`
		Active   *bool                      `json:"active,omitempty" doc:"false pauses the schedule. Default: unchanged; a new schedule is active"`
	}
}

type idOutput struct {
	Body struct {
		ID int64 `json:"id" doc:"The id of the event"`
	}
}

func (s *Server) schedules() {
	registerList(s, operation{
		method: http.MethodGet, path: "/v1/schedules", id: "list-schedules", tag: "schedules",
		summary:     "List schedules",
		description: "Each with its cron expression, its event, and its next time.",
		scope:       scopeRead,
	}, (*admin.Admin).Schedules)

	register(s, operation{
		method: http.MethodGet, path: "/v1/schedules/{name}", id: "get-schedule", tag: "schedules",
		summary:     "Get a schedule",
		description: "Its cron expression, its event, its last time and its next time.",
		scope:       scopeRead,
	}, s.getSchedule)

	register(s, operation{
		method: http.MethodPut, path: "/v1/schedules/{name}", id: "put-schedule", tag: "schedules",
		summary:     "Create a schedule, or change it",
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
		}, func(ctx context.Context, c caller, input *in.ByName) (*struct{}, error) {
			return nil, do(s.admin(c), ctx, input.Name)
		})
	}
	onSchedule("pause", "Pause a schedule: it publishes nothing until it is resumed", (*admin.Admin).PauseSchedule)
	onSchedule("resume", "Resume a paused schedule with its next time", (*admin.Admin).ResumeSchedule)

	register(s, operation{
		method: http.MethodPost, path: "/v1/schedules/{name}/run", id: "run-schedule", tag: "schedules",
		summary:     "Publish the event of a schedule now",
		description: "The times of the schedule do not change. The response has the id of the event.",
		scope:       scopeAdmin,
	}, func(ctx context.Context, c caller, input *in.ByName) (output *idOutput, err error) {
		output = &idOutput{}
		output.Body.ID, err = s.admin(c).RunScheduleNow(ctx, input.Name)
		return output, err
	})
}

func (s *Server) getSchedule(ctx context.Context, c caller, input *in.ByName) (*bodyOf[admin.ScheduleStatus], error) {
	status, err := s.admin(c).Schedule(ctx, input.Name)
	return &bodyOf[admin.ScheduleStatus]{status}, err
}

func (s *Server) putSchedule(ctx context.Context, c caller, input *putScheduleInput) (*bodyOf[admin.ScheduleStatus], error) {
	b := input.Body
	schedule := admin.Schedule{
		Name: input.Name, Cron: b.Cron, Type: b.Type, Payload: b.Payload, TimeZone: b.TimeZone, CatchUp: b.CatchUp,
		Stream: b.Stream, Key: b.Key, Active: b.Active, Job: b.Job,
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
	return s.getSchedule(ctx, c, &input.ByName)
}

func (s *Server) deleteSchedule(ctx context.Context, c caller, input *in.ByName) (*struct{}, error) {
	existed, err := s.admin(c).Unschedule(ctx, input.Name)
	if err == nil && !existed {
		err = errNoSchedule(c, input.Name)
	}
	return nil, err
}

// errNoSchedule is the error for a schedule that does not exist.
func errNoSchedule(c caller, name string) error {
	return notFound(fmt.Sprintf("schedule '%s' does not exist in namespace %s", name, c.namespace), "See: posthorn schedules list")
}
