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

type groupInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the group"`
}

type defineGroupInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the group"`
	Body *admin.GroupSettings
}

type seekInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the group"`
	Body struct {
		To string `json:"to" doc:"beginning, end or a time: it is handed every event published from then on" example:"2026-01-31T12:00:00Z"`
	}
}

type groupOutput struct{ Body groupView }

func (s *Server) groups() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/groups", id: "list-groups", tag: "groups",
		summary:     "Groups, and where they stand",
		description: "Each with its position in the log, how far it is behind, and how many events are retried or dead.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.GroupStatus], error) {
		all, err := s.admin(c).Groups(ctx)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodGet, path: "/v1/groups/{name}", id: "get-group", tag: "groups",
		summary:     "Where a group stands, and its policy",
		description: "Its policy, its position in the log, how far it is behind, and how many events are retried or dead.",
		scope:       scopeRead,
	}, s.getGroup)

	register(s, operation{
		method: http.MethodPut, path: "/v1/groups/{name}", id: "define-group", tag: "groups",
		summary:     "Make a group, or change its policy",
		description: "A setting that the body leaves out has its default in a new group. start is for new groups only.",
		scope:       scopeConsume,
	}, s.defineGroup)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/groups/{name}", id: "delete-group", tag: "groups",
		summary:     "Remove a group with all it holds",
		description: "Its position, retries, dead letters and subscriptions go with it. The events of the log stay.",
		scope:       scopeAdmin,
	}, s.deleteGroup)

	onGroup := func(verb, summary string, do func(a *admin.Admin, ctx context.Context, group string) error) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/groups/{name}/" + verb, id: verb + "-group", tag: "groups",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "Leases that were claimed before stay valid. A second call changes nothing.",
		}, func(ctx context.Context, c caller, input *groupInput) (*struct{}, error) {
			err := do(s.admin(c), ctx, input.Name)
			s.waits.news(groupName{c.namespace, input.Name})
			return nil, err
		})
	}
	onGroup("pause", "Hand out nothing until it is resumed", (*admin.Admin).PauseGroup)
	onGroup("resume", "Hand out events again", (*admin.Admin).ResumeGroup)

	register(s, operation{
		method: http.MethodPost, path: "/v1/groups/{name}/seek", id: "seek-group", tag: "groups",
		summary: "Move a group to a time", scope: scopeAdmin, status: http.StatusNoContent,
		description: "Whoever works on something of the group loses the lease; what has failed stays owed.",
	}, s.seekGroup)

	s.claiming()
	s.leases()
}

func (s *Server) getGroup(ctx context.Context, c caller, input *groupInput) (*groupOutput, error) {
	return s.groupNamed(ctx, c, input.Name)
}

func (s *Server) groupNamed(ctx context.Context, c caller, name string) (*groupOutput, error) {
	status, err := s.admin(c).Group(ctx, name)
	if err != nil {
		return nil, err
	}
	policy, err := s.admin(c).GroupPolicy(ctx, name)
	return &groupOutput{groupView{status, &policy}}, err
}

func (s *Server) defineGroup(ctx context.Context, c caller, input *defineGroupInput) (*groupOutput, error) {
	var settings admin.GroupSettings
	if input.Body != nil {
		settings = *input.Body
	}
	if err := s.checkDefine(ctx, c, input.Name); err != nil {
		return nil, err
	}
	if err := s.admin(c).DefineGroup(ctx, input.Name, settings); err != nil {
		return nil, err
	}
	return s.groupNamed(ctx, c, input.Name)
}

type deletedOutput struct{ Body admin.DeletedGroup }

func (s *Server) deleteGroup(ctx context.Context, c caller, input *groupInput) (*deletedOutput, error) {
	if err := s.checkRemove(ctx, c, input.Name, nil); err != nil {
		return nil, err
	}
	deleted, err := s.admin(c).DeleteGroup(ctx, input.Name)
	return &deletedOutput{deleted}, err
}

func (s *Server) seekGroup(ctx context.Context, c caller, input *seekInput) (*struct{}, error) {
	to, err := moment(input.Body.To)
	if err != nil {
		return nil, err
	}
	if err := s.checkClaim(ctx, c, input.Name); err != nil {
		return nil, err
	}
	err = s.admin(c).Seek(ctx, input.Name, to)
	s.waits.news(groupName{c.namespace, input.Name})
	return nil, err
}

// moment reads a place in the log.
func moment(text string) (posthorn.Moment, error) {
	switch text {
	case "beginning":
		return posthorn.Beginning, nil
	case "end":
		return posthorn.End, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return posthorn.Moment{}, badRequest("this is no moment: "+text, "Give beginning, end, or a time like 2026-01-31T12:00:00Z.")
	}
	return posthorn.At(at), nil
}
