package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

// groupSettings is what there is to say of a group. What is left out stays as it
// is.
type groupSettings struct {
	Order     string           `json:"order,omitempty" enum:"none,key,stream,total" doc:"Whether events of one key, of one stream, or all of them, come one after another"`
	Slots     int              `json:"slots,omitempty" doc:"In a group ordered by key: how many keys at once"`
	Attempts  *int             `json:"attempts,omitempty" doc:"Deliveries before an event becomes a dead letter; 0 for no limit"`
	Delays    []string         `json:"delays,omitempty" doc:"Before each further attempt, such as 10 seconds or 00:05:00; instead of backoff"`
	Backoff   *backoffSettings `json:"backoff,omitempty"`
	OnFailure string           `json:"on_failure,omitempty" enum:"block,set_aside" doc:"In ordered groups: whether a failed event keeps those behind it waiting"`
	ReadAhead int              `json:"read_ahead,omitempty" doc:"In ordered groups: how many events may wait"`
	Start     string           `json:"start,omitempty" doc:"Where a new group starts: beginning, end or a time. Default: end"`
}

type backoffSettings struct {
	From   string   `json:"from,omitempty" example:"1 second"`
	To     string   `json:"to,omitempty" example:"5 minutes"`
	Factor float64  `json:"factor,omitempty" example:"2"`
	Jitter *float64 `json:"jitter,omitempty" doc:"The part of a delay that is random, from 0 to 1"`
}

type groupView struct {
	pg.GroupStatus
	Policy *pg.GroupPolicy `json:"policy,omitempty"`
}

type groupInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the group"`
}

type defineGroupInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the group"`
	Body *groupSettings
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
		method: http.MethodGet, path: "/v1/groups", id: "list-groups", group: "groups",
		summary:     "Groups, and where they stand",
		description: "Each with its position in the log, how far it is behind, and how many events are retried or dead.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *anyInput) (*listOf[pg.GroupStatus], error) {
		all, err := pg.ListGroups(ctx, s.client.Pool(), c.namespace)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodGet, path: "/v1/groups/{name}", id: "get-group", group: "groups",
		summary:     "Where a group stands, and its policy",
		description: "Its policy, its position in the log, how far it is behind, and how many events are retried or dead.",
		scope:       scopeRead,
	}, s.getGroup)

	register(s, operation{
		method: http.MethodPut, path: "/v1/groups/{name}", id: "define-group", group: "groups",
		summary:     "Make a group, or change its policy",
		description: "A setting that the body leaves out has its default in a new group. start is for new groups only.",
		scope:       scopeConsume,
	}, s.defineGroup)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/groups/{name}", id: "delete-group", group: "groups",
		summary:     "Remove a group with all it holds",
		description: "Its position, retries, dead letters and subscriptions go with it. The events of the log stay.",
		scope:       scopeAdmin,
	}, s.deleteGroup)

	onGroup := func(verb, summary string, do func(ctx context.Context, db pg.DB, namespace, group string) error) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/groups/{name}/" + verb, id: verb + "-group", group: "groups",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "Leases that were claimed before stay valid. A second call changes nothing.",
		}, func(ctx context.Context, c caller, input *groupInput) (*struct{}, error) {
			err := do(ctx, s.client.Pool(), c.namespace, input.Name)
			s.waits.news(groupName{c.namespace, input.Name})
			return nil, err
		})
	}
	onGroup("pause", "Hand out nothing until it is resumed", pg.PauseGroup)
	onGroup("resume", "Hand out events again", pg.ResumeGroup)

	register(s, operation{
		method: http.MethodPost, path: "/v1/groups/{name}/seek", id: "seek-group", group: "groups",
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
	status, err := pg.StatusOfGroup(ctx, s.client.Pool(), c.namespace, name)
	if err != nil {
		return nil, err
	}
	policy, err := pg.PolicyOfGroup(ctx, s.client.Pool(), c.namespace, name)
	return &groupOutput{groupView{status, &policy}}, err
}

func (s *Server) defineGroup(ctx context.Context, c caller, input *defineGroupInput) (*groupOutput, error) {
	policy := groupSettings{}
	if input.Body != nil {
		policy = *input.Body
	}
	document, err := json.Marshal(policy)
	if err != nil {
		return nil, err
	}
	if err := s.checkDefine(ctx, c, input.Name); err != nil {
		return nil, err
	}
	if err := pg.DefineGroupBy(ctx, s.client.Pool(), c.namespace, input.Name, string(document)); err != nil {
		return nil, err
	}
	return s.groupNamed(ctx, c, input.Name)
}

type deletedOutput struct{ Body pg.Deleted }

func (s *Server) deleteGroup(ctx context.Context, c caller, input *groupInput) (*deletedOutput, error) {
	if err := s.checkRemove(ctx, c, input.Name, nil); err != nil {
		return nil, err
	}
	deleted, err := pg.DeleteGroup(ctx, s.client.Pool(), c.namespace, input.Name)
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
	err = pg.Seek(ctx, s.client.Pool(), c.namespace, input.Name, to)
	s.waits.news(groupName{c.namespace, input.Name})
	return nil, err
}

// moment reads a place in the log.
func moment(text string) (pg.Moment, error) {
	switch text {
	case "beginning":
		return pg.Beginning, nil
	case "end":
		return pg.End, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return pg.Moment{}, badRequest("this is no moment: "+text, "Give beginning, end, or a time like 2026-01-31T12:00:00Z.")
	}
	return pg.At(at), nil
}
