package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// GroupStatus is the position and the load of a group, over all processes.
type GroupStatus struct {
	Namespace     string    `json:"namespace"`
	Group         string    `json:"group" db:"group_name"`
	Order         string    `json:"order" db:"ordering"` // none, key, stream or total
	Paused        bool      `json:"paused"`
	Position      int64     `json:"position"`                // the id of the last event that was handed to it
	LagEvents     int64     `json:"lag_events"`              // events that were not handed to it yet; an estimate beyond 10,000
	LagSeconds    float64   `json:"lag_seconds"`             // age of the oldest of them
	OldestPending time.Time `json:"oldest_pending,omitzero"` // when that one was published
	Leases        int64     `json:"leases"`                  // batches that workers have
	ExpiredLeases int64     `json:"expired_leases"`          // leases past their deadline that no worker has taken over yet
	Retries       int64     `json:"retries"`                 // failed events that are tried again
	BlockedSlots  int64     `json:"blocked_slots"`           // slots of an ordered group that wait for a retry
	DeadLetters   int64     `json:"dead_letters"`

	// The oldest open transaction, which may keep the group from moving. A prepared
	// transaction has no PID.
	HeldByPID         int32   `json:"held_by_pid,omitempty"`
	HeldForSeconds    float64 `json:"held_for_seconds,omitempty"`
	HeldByApplication string  `json:"held_by_application,omitempty"`
}

const makeGroup = "Make it first, or look for it in another namespace."

var groups = kind[GroupStatus]{"group", `
	select *, extract(epoch from held_for) as held_for_seconds
	from posthorn.group_status
	where namespace = $1::text and group_name = coalesce($2::text, group_name) and ` + seen("group", "group_name", "$3") + `
	order by group_name`, makeGroup}

// Groups returns the statuses of the groups of the namespace, by name.
func (a *Admin) Groups(ctx context.Context) ([]GroupStatus, error) { return groups.all(ctx, a) }

// GroupNames returns the names of the groups that contain a text, in order, after a name
// or from the first one on.
func (a *Admin) GroupNames(ctx context.Context, part, after string, limit int) ([]string, error) {
	return a.names(ctx, "find groups", "select posthorn.find_groups($1::text, $2::text, $3::text, $4::int, $5::text[])", part, pg.Optional(after), limit, list(a.hidden))
}

// RankedGroup is a place in an order of groups.
type RankedGroup struct {
	Group    string  `db:"group_name"`
	Rank     float64 `db:"rank"`
	Matching int64   `db:"matching"` // the number of groups in the order
}

// RankGroups returns the groups that contain a text behind another one, with "" the first, in
// the order of their name, oldest unread event, backlog, retries or dead (letters): the worst
// first.
func (a *Admin) RankGroups(ctx context.Context, part, sort string, after RankedGroup, limit int) ([]RankedGroup, error) {
	return rows[RankedGroup](ctx, a.db, "rank groups", "select * from posthorn.rank_groups($1::text, $2::text, $3::text, $4::float8, $5::text, $6::int, $7::text[])",
		a.namespace, part, sort, after.Rank, pg.Optional(after.Group), limit, list(a.hidden))
}

// GroupsNamed returns the statuses of some groups of the namespace, by name.
func (a *Admin) GroupsNamed(ctx context.Context, names []string) ([]GroupStatus, error) {
	return rows[GroupStatus](ctx, a.db, "list groups", `
		select *, extract(epoch from held_for) as held_for_seconds
		from posthorn.group_status
		where namespace = $1::text and group_name = any ($2::text[]) and `+seen("group", "group_name", "$3")+`
		order by group_name`, a.namespace, list(names), list(a.hidden))
}

// Group returns the status of one group.
func (a *Admin) Group(ctx context.Context, group string) (GroupStatus, error) {
	return groups.named(ctx, a, group)
}

// GroupPolicy is the policy of a group, with all defaults filled in. Periods are as
// Postgres writes them.
type GroupPolicy struct {
	Slots         int       `json:"slots"`            // of a group ordered by key: keys share so many slots, and each slot is handled by itself
	Attempts      int       `json:"attempts"`         // before an event becomes a dead letter; 0: no limit
	Delays        []string  `json:"delays,omitempty"` // before each further attempt; none: the backoff applies
	BackoffFrom   string    `json:"backoff_from"`
	BackoffTo     string    `json:"backoff_to"`
	BackoffFactor float64   `json:"backoff_factor"`
	BackoffJitter float64   `json:"backoff_jitter"` // the random part of a delay, from 0 to 1
	OnFailure     string    `json:"on_failure"`     // block or set_aside
	ReadAhead     int       `json:"read_ahead"`     // events that may wait in an ordered group
	CreatedAt     time.Time `json:"created_at"`
}

// GroupPolicy returns the policy of a group.
func (a *Admin) GroupPolicy(ctx context.Context, group string) (GroupPolicy, error) {
	found, err := rows[GroupPolicy](ctx, a.db, "show group", `
		select g.slots, g.attempts, g.delays::text[], g.backoff_from::text, g.backoff_to::text,
			g.backoff_factor, g.backoff_jitter, g.on_failure, g.read_ahead, g.created_at
		from posthorn.groups g
		join posthorn.namespaces n on n.id = g.namespace_id
		where n.namespace = $1::text and g.name = $2::text and `+seen("group", "g.name", "$3"), a.namespace, group, list(a.hidden))
	return only(a, found, err, "group", group, makeGroup)
}

// GroupKind returns the kind of a group: group, projection, relay, archive or webhooks.
// Only groups and relays can be moved.
func (a *Admin) GroupKind(ctx context.Context, group string) (string, error) {
	found, err := rows[struct {
		Kind string `db:"kind"`
	}](ctx, a.db, "show group", `
		select g.kind
		from posthorn.groups g
		join posthorn.namespaces n on n.id = g.namespace_id
		where n.namespace = $1::text and g.name = $2::text and `+seen("group", "g.name", "$3"), a.namespace, group, list(a.hidden))
	one, err := only(a, found, err, "group", group, makeGroup)
	return one.Kind, err
}

// GroupSettings are the settings of a group. A setting that is left out stays as it is,
// or has its default in a new group. Periods are texts that Postgres reads.
type GroupSettings struct {
	Order     string           `json:"order,omitempty" enum:"none,key,stream,total" doc:"Whether events of one key, of one stream, or all of them, come one after another"`
	Slots     int              `json:"slots,omitempty" doc:"In a group ordered by key: keys share so many slots, and each slot is handled by itself"`
	Attempts  *int             `json:"attempts,omitempty" doc:"Attempts before an event becomes a dead letter; 0 for no limit"`
	Delays    []string         `json:"delays,omitempty" maxItems:"1000" doc:"Before each further attempt, such as 10 seconds or 00:05:00; instead of backoff"`
	Backoff   *BackoffSettings `json:"backoff,omitempty" doc:"Delays that grow from attempt to attempt: from, to, factor and jitter"`
	OnFailure string           `json:"on_failure,omitempty" enum:"block,set_aside" doc:"In ordered groups: whether a failed event keeps those behind it waiting"`
	ReadAhead int              `json:"read_ahead,omitempty" doc:"In ordered groups: how many events may wait"`
	Start     string           `json:"start,omitempty" doc:"Where a new group starts: beginning, end or a time. Default: end"`
}

// BackoffSettings are delays that grow from attempt to attempt.
type BackoffSettings struct {
	From   string   `json:"from,omitempty" example:"1 second"`
	To     string   `json:"to,omitempty" example:"5 minutes"`
	Factor float64  `json:"factor,omitempty" example:"2"`
	Jitter *float64 `json:"jitter,omitempty" doc:"The random part of a delay, from 0 to 1"`
}

// DefineGroup makes a group, or changes its policy.
func (a *Admin) DefineGroup(ctx context.Context, group string, settings GroupSettings) error {
	document, err := json.Marshal(settings)
	if err != nil {
		return pg.Translate("define group", err)
	}
	if err := a.checkDefine(ctx, group); err != nil {
		return err
	}
	return a.change(ctx, aGroup(group).made(), entry{"define-group", group, settings}, "select posthorn.define_group($1::text, $2::text, $3::jsonb)", a.namespace, group, string(document))
}

// Seek moves a group: it gets every event that was published from then on. Workers lose
// the leases of the group. Its failed events are still retried.
func (a *Admin) Seek(ctx context.Context, group string, to Moment) error {
	if err := a.CheckClaim(ctx, group); err != nil {
		return err
	}
	return a.change(ctx, aGroup(group), entry{"seek-group", group, map[string]Moment{"to": to}}, "select posthorn.seek($1::text, $2::text, $3::timestamptz)", a.namespace, group, to)
}

// PauseGroup stops a group: no process gets events of it until [Admin.ResumeGroup].
// Events that are being handled are settled as usual.
func (a *Admin) PauseGroup(ctx context.Context, group string) error {
	return a.change(ctx, aGroup(group), entry{"pause-group", group, nil}, "select posthorn.pause_group($1::text, $2::text)", a.namespace, group)
}

// ResumeGroup lets a paused group go on from its position.
func (a *Admin) ResumeGroup(ctx context.Context, group string) error {
	return a.change(ctx, aGroup(group), entry{"resume-group", group, nil}, "select posthorn.resume_group($1::text, $2::text)", a.namespace, group)
}

// DeletedGroup counts the rows that were deleted with a group.
type DeletedGroup struct {
	Leases      int64 `json:"leases"`
	Retries     int64 `json:"retries"`
	DeadLetters int64 `json:"dead_letters"`
}

// DeleteGroup deletes a group with its position, subscriptions, retries and dead
// letters. The events of the log stay.
func (a *Admin) DeleteGroup(ctx context.Context, group string) (DeletedGroup, error) {
	var deleted DeletedGroup
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return deleted, err
	}
	if err := a.checkRemove(ctx, group, nil); err != nil {
		return deleted, err
	}
	_, err := a.recorded(ctx, aGroup(group), entry{"delete-group", group, nil}, func(db DB) (int64, error) {
		found, err := rows[DeletedGroup](ctx, db, "delete group", "select * from posthorn.delete_group($1::text, $2::text)", a.namespace, group)
		deleted, err = only(a, found, err, "group", group, makeGroup)
		return 1, err
	})
	return deleted, err
}
