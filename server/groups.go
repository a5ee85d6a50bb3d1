package server

import (
	"context"
	"net/http"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type groupView struct {
	admin.GroupStatus
	Policy *admin.GroupPolicy `json:"policy,omitempty"`
}

type defineGroupInput struct {
	in.ByName
	Body *admin.GroupSettings
}

type seekInput struct {
	in.ByName
	Body struct {
		To string `json:"to" doc:"The group continues with the first event that was published then or later: beginning, end, or a time" example:"2026-01-31T12:00:00Z"`
	}
}

func (s *Server) groups() {
	registerList(s, operation{
		method: http.MethodGet, path: "/v1/groups", id: "list-groups", tag: "groups",
		summary:     "List groups",
		description: "Each with its position in the log, its lag, and the number of its retries and dead letters.",
		scope:       scopeRead,
	}, (*admin.Admin).Groups)

	register(s, operation{
		method: http.MethodGet, path: "/v1/groups/{name}", id: "get-group", tag: "groups",
		summary:     "Get a group and its policy",
		description: "Its policy, its position in the log, its lag, and the number of its retries and dead letters.",
		scope:       scopeRead,
	}, s.getGroup)

	register(s, operation{
		method: http.MethodPut, path: "/v1/groups/{name}", id: "define-group", tag: "groups",
		summary: "Create a group, or change its policy",
		description: "In a new group, a setting that the body leaves out has its default; in an existing group it stays as it is. " +
			"start is for new groups only.",
		scope: scopeConsume,
	}, s.defineGroup)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/groups/{name}", id: "delete-group", tag: "groups",
		summary:     "Delete a group",
		description: "Its position, retries, dead letters and subscriptions are deleted too. The events of the log stay.",
		scope:       scopeAdmin,
	}, s.deleteGroup)

	onGroup := func(verb, summary string, do func(a *admin.Admin, ctx context.Context, group string) error) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/groups/{name}/" + verb, id: verb + "-group", tag: "groups",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "Existing leases stay valid. A second call changes nothing.",
		}, func(ctx context.Context, c caller, input *in.ByName) (*struct{}, error) {
			err := do(s.admin(c), ctx, input.Name)
			s.waits.wake(groupName{c.namespace, input.Name})
			return nil, err
		})
	}
	onGroup("pause", "Pause a group: it hands out no events until it is resumed", (*admin.Admin).PauseGroup)
	onGroup("resume", "Resume a paused group", (*admin.Admin).ResumeGroup)

	register(s, operation{
		method: http.MethodPost, path: "/v1/groups/{name}/seek", id: "seek-group", tag: "groups",
		summary: "Move a group to a time", scope: scopeAdmin, status: http.StatusNoContent,
		description: "The leases of the group are lost. Its retries and dead letters stay.",
	}, s.seekGroup)

	register(s, operation{
		method: http.MethodGet, path: "/v1/groups/{name}/seek", id: "preview-seek-group", tag: "groups",
		summary: "Preview moving a group", scope: scopeRead,
		description: "The number of events that the group would be handed again, and of those that it would skip: estimates beyond 10,000.",
	}, s.previewSeek)

	s.claiming()
	s.leases()
}

func (s *Server) getGroup(ctx context.Context, c caller, input *in.ByName) (*bodyOf[groupView], error) {
	status, err := s.admin(c).Group(ctx, input.Name)
	if err != nil {
		return nil, err
	}
	policy, err := s.admin(c).GroupPolicy(ctx, input.Name)
	return &bodyOf[groupView]{groupView{status, &policy}}, err
}

func (s *Server) defineGroup(ctx context.Context, c caller, input *defineGroupInput) (*bodyOf[groupView], error) {
	var settings admin.GroupSettings
	if input.Body != nil {
		settings = *input.Body
	}
	if err := s.admin(c).DefineGroup(ctx, input.Name, settings); err != nil {
		return nil, err
	}
	return s.getGroup(ctx, c, &input.ByName)
}

func (s *Server) deleteGroup(ctx context.Context, c caller, input *in.ByName) (*bodyOf[admin.DeletedGroup], error) {
	deleted, err := s.admin(c).DeleteGroup(ctx, input.Name)
	return &bodyOf[admin.DeletedGroup]{deleted}, err
}

func (s *Server) seekGroup(ctx context.Context, c caller, input *seekInput) (*struct{}, error) {
	to, err := parseMoment(input.Body.To)
	if err != nil {
		return nil, err
	}
	err = s.admin(c).Seek(ctx, input.Name, to)
	s.waits.wake(groupName{c.namespace, input.Name})
	return nil, err
}

type previewSeekInput struct {
	in.ByName
	To string `query:"to" required:"true" doc:"beginning, end, or a time" example:"2026-01-31T12:00:00Z"`
}

func (s *Server) previewSeek(ctx context.Context, c caller, input *previewSeekInput) (*bodyOf[admin.SeekPreview], error) {
	to, err := parseMoment(input.To)
	if err != nil {
		return nil, err
	}
	preview, err := s.admin(c).PreviewSeek(ctx, input.Name, to)
	return &bodyOf[admin.SeekPreview]{preview}, err
}

func parseMoment(text string) (posthorn.Moment, error) {
	switch text {
	case "beginning":
		return posthorn.Beginning, nil
	case "end":
		return posthorn.End, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return posthorn.Moment{}, badRequest("to is not a time: "+text, "Give beginning, end, or a time like 2026-01-31T12:00:00Z.")
	}
	return posthorn.At(at), nil
}
