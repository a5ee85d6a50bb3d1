package op

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

var groups = Topic{"groups", "group", "billing"}

var ListGroups = listAll(About{
	Topic: groups, SQL: "group_status",
	Does: "List groups and their positions",
	More: "Each has its position in the log, its lag, and the number of its retries and dead letters. The lag is the number " +
		"of events that the group has not been handed yet, an estimate beyond 10,000, and the age of the oldest of them.",
	Example: "posthorn groups list --namespace shop --json",
	ByHand:  map[Face]string{Page: "it has a search, and pages"},
}, (*admin.Admin).Groups)

// GroupView is a group with its policy.
type GroupView struct {
	admin.GroupStatus
	Policy *admin.GroupPolicy `json:"policy,omitempty"`
}

// GroupDetails is a group with its policy and its subscriptions.
type GroupDetails struct {
	GroupView
	Subscriptions []admin.SubscriptionStatus `json:"subscriptions"`
}

var GetGroup = getNamed(About{
	Topic: groups, SQL: "group_status",
	Does:   "Show one group: its position, its policy and its subscriptions",
	More:   "The result also has its lag, and the number of its retries and dead letters.",
	ByHand: map[Face]string{Page: "it also has readers, leases, retries and errors"},
}, func(a *admin.Admin, ctx context.Context, name string) (d GroupDetails, err error) {
	if d.GroupView, err = viewGroup(ctx, a, name); err != nil {
		return d, err
	}
	subscriptions, err := a.Subscriptions(ctx, name)
	d.Subscriptions = append([]admin.SubscriptionStatus{}, subscriptions...)
	return d, err
})

func viewGroup(ctx context.Context, a *admin.Admin, name string) (v GroupView, err error) {
	if v.GroupStatus, err = a.Group(ctx, name); err != nil {
		return v, err
	}
	policy, err := a.GroupPolicy(ctx, name)
	v.Policy = &policy
	return v, err
}

// DefineGroupInput has the settings of a group.
type DefineGroupInput struct {
	ByName
	Body *admin.GroupSettings
}

var DefineGroup = Op[DefineGroupInput, GroupView]{
	About: About{
		Topic: groups, Verb: "define", Method: "PUT", Scope: Consume,
		Does: "Make a group, or change its policy",
		More: "In a new group, a setting that is left out has its default; in an existing group it stays as it is. " +
			"The start counts for new groups only.",
		Example: "posthorn groups define billing\n" +
			"posthorn groups define mail --order key --attempts 10 --from beginning\n" +
			"posthorn groups define mail --delays 1s,1m,1h",
		ByHand: map[Face]string{Command: "its flags have periods like 1s, and times ago"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *DefineGroupInput) (GroupView, error) {
		var settings admin.GroupSettings
		if in.Body != nil {
			settings = *in.Body
		}
		if err := a.DefineGroup(ctx, in.Name, settings); err != nil {
			return GroupView{}, err
		}
		return viewGroup(ctx, a, in.Name)
	},
	Load: loadGroup,
	Done: func(in *DefineGroupInput, _ GroupView) string { return "group " + in.Name + " is defined" },
}

func loadGroup(ctx context.Context, a *admin.Admin, in *DefineGroupInput) error {
	g, err := viewGroup(ctx, a, in.Name)
	if err != nil {
		return err
	}
	p := g.Policy
	in.Body = &admin.GroupSettings{
		Order: g.Order, Slots: p.Slots, Attempts: &p.Attempts, Delays: p.Delays, OnFailure: p.OnFailure, ReadAhead: p.ReadAhead,
	}
	if len(p.Delays) == 0 {
		in.Body.Backoff = &admin.BackoffSettings{From: p.BackoffFrom, To: p.BackoffTo, Factor: p.BackoffFactor, Jitter: &p.BackoffJitter}
	}
	return nil
}

var DeleteGroup = Op[ByName, admin.DeletedGroup]{
	About: About{
		Topic: groups, Verb: "delete",
		Does:    "Delete a group with its position, subscriptions, retries and dead letters",
		More:    "Its leases end: the answers of workers that have one are refused. The events stay in the log, for other groups.",
		Example: "posthorn groups delete billing --yes",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (admin.DeletedGroup, error) {
		return a.DeleteGroup(ctx, in.Name)
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *ByName) (string, error) {
		g, err := a.Group(ctx, in.Name)
		return fmt.Sprintf("delete group %s with %s and %s", g.Group, Counted(g.Retries, "retry"), Counted(g.DeadLetters, "dead letter")), err
	},
	Done: func(in *ByName, out admin.DeletedGroup) string {
		return fmt.Sprintf("deleted group %s with %s, %s and %s", in.Name, Counted(out.Leases, "lease"), Counted(out.Retries, "retry"),
			Counted(out.DeadLetters, "dead letter"))
	},
}

var PauseGroup = onNamed(About{
	Topic: groups, Verb: "pause", Wakes: true,
	Does: "Hand out no events of a group until it is resumed",
	More: "Workers finish the events that they have, and retention keeps the events that the group has not read. " +
		"A second call changes nothing.",
}, (*admin.Admin).PauseGroup, "group %s is paused")

var ResumeGroup = onNamed(About{
	Topic: groups, Verb: "resume", Wakes: true,
	Does: "Resume a paused group at its position",
	More: "A second call changes nothing.",
}, (*admin.Admin).ResumeGroup, "group %s is resumed")

// SeekInput says where a group goes on.
type SeekInput struct {
	ByName
	Body struct {
		To string `json:"to" doc:"The group continues with the first event that was published then or later: beginning, end, or a time" example:"2026-01-31T12:00:00Z"`
	}
}

var SeekGroup = Op[SeekInput, None]{
	About: About{
		Topic: groups, Verb: "seek", Go: "Seek", SQL: "seek", Command: "groups seek NAME beginning|end|TIME", Wakes: true,
		Does: "Move a group to a time, the beginning or the end",
		More: "It gets every event that was published from then on, including those that it has handled before. Its leases " +
			"end: the answers of workers that have one are refused. Its retries and dead letters stay.",
		Example: "posthorn groups seek billing -1h\nposthorn groups seek billing 2026-01-31\nposthorn groups seek billing end --yes",
		ByHand:  map[Face]string{Command: relative, Page: "a time is chosen in the time zone of the browser"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *SeekInput) (None, error) {
		to, err := momentOf(in.Body.To)
		if err != nil {
			return None{}, err
		}
		return None{}, a.Seek(ctx, in.Name, to)
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *SeekInput) (string, error) {
		to, err := momentOf(in.Body.To)
		if err != nil {
			return "", err
		}
		p, err := a.PreviewSeek(ctx, in.Name, to)
		return fmt.Sprintf("move group %s to %s: %s", in.Name, in.Body.To, effect(p)), err
	},
	Done: func(in *SeekInput, _ None) string {
		return fmt.Sprintf("group %s stands at %s", in.Name, in.Body.To)
	},
}

const relative = "TIME may be a time ago, such as -1h"

// PreviewSeekInput says where a group would go on.
type PreviewSeekInput struct {
	ByName
	To string `query:"to" required:"true" doc:"beginning, end, or a time" example:"2026-01-31T12:00:00Z"`
}

var PreviewSeekGroup = Op[PreviewSeekInput, admin.SeekPreview]{
	About: About{
		Topic: groups, Verb: "preview", Scope: Read, Name: "preview-seek-group", Go: "PreviewSeek", SQL: "preview_seek",
		Method: "GET", Path: "/v1/groups/{name}/seek", Command: "groups preview NAME beginning|end|TIME",
		Does:    "Show which events a group would get again or pass over, if it was moved",
		More:    "The numbers are estimates beyond 10,000. Nothing is changed.",
		Example: "posthorn groups preview billing -1h",
		ByHand:  map[Face]string{Command: relative},
		Without: map[Face]string{Page: "the question before a group is moved has it"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *PreviewSeekInput) (p admin.SeekPreview, err error) {
		to, err := momentOf(in.To)
		if err != nil {
			return p, err
		}
		return a.PreviewSeek(ctx, in.Name, to)
	},
}

// effect is the effect of moving a group, in words.
func effect(p admin.SeekPreview) string {
	of := ""
	if p.HasSubscriptions {
		of = ", of these only those that its subscriptions want"
	}
	come, are := "events come", "are"
	if p.Again == 1 {
		come = "event comes"
	}
	if p.Skipped == 1 {
		are = "is"
	}
	return fmt.Sprintf("%s %s again, %s %s passed over%s, workers lose %s",
		estimated(p.Again), come, estimated(p.Skipped), are, of, Counted(p.Leases, "lease"))
}

// estimated is a number of events in the log, which is estimated beyond 10,000.
func estimated(n int64) string {
	if n >= 10000 {
		return fmt.Sprintf("about %d", n)
	}
	return fmt.Sprint(n)
}

// momentOf reads a place in the log.
func momentOf(text string) (admin.Moment, error) {
	switch text {
	case "beginning":
		return admin.Moment{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, nil
	case "end":
		return admin.Moment{InfinityModifier: pgtype.Infinity, Valid: true}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return admin.Moment{}, pg.Invalid("to is not a time: "+text, "Give beginning, end, or a time like 2026-01-31T12:00:00Z.")
	}
	return admin.Moment{Time: at, Valid: true}, nil
}
