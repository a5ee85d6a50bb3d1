package admin

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// Hiding returns an Admin for a caller who may not read some streams. Events of these
// streams do not exist for the caller, and neither do webhooks, schedules, subscriptions,
// groups, relays, imports, findings and entries of the audit log that are about such a
// stream: they are in no list, and changing one fails as if there were none of its name.
// A new thing may not have the name of one, and may not name such a stream. Errors of
// things that read such a stream beside others are withheld. Numbers of a namespace or a
// group count events of all streams.
//
// The rules are the SQL functions beside posthorn.hidden_things.
func (a *Admin) Hiding(streams []string) *Admin {
	other := *a
	other.hidden = slices.Clone(streams)
	return &other
}

// Reads tells whether the caller may read a stream.
func (a *Admin) Reads(stream string) bool { return !slices.Contains(a.hidden, stream) }

// CheckPublish refuses to publish to a stream that the caller may not read.
func (a *Admin) CheckPublish(stream string) error {
	if a.Reads(stream) {
		return nil
	}
	return errUnnamed(stream, "publish")
}

func errUnnamed(stream, scope string) error {
	return pg.Refused("the token does not name the restricted stream "+stream,
		"Use one that does: posthorn tokens create NAME --scope "+scope+" --stream "+stream+".")
}

// withheld stands for an error that may be about an event which the caller may not read.
const withheld = "withheld: it may be about a restricted stream that the token does not name"

// seen is a condition of a query: things of a kind, whose names are in a column, exist for
// the caller. The parameter has the hidden streams; the first one of the query has the
// namespace.
func seen(kind, column, parameter string) string {
	return `not exists (select from posthorn.hidden_things($1::text, ` + parameter + `::text[]) h
		where h.wholly and h.kind = '` + kind + `' and h.name = ` + column + `)`
}

// seenError is the column seen_error of a query for things of a kind, whose names are in a
// column: their error, unless that may be about a hidden stream.
func seenError(kind, column string) string {
	return `case when error is not null and exists (select from posthorn.hidden_things($1::text, $3::text[]) h
		where h.kind = '` + kind + `' and h.name = ` + column + `) then '` + withheld + `' else error end as seen_error`
}

// seenStreams is a column of a query: the streams and patterns in another one, without
// hidden streams.
func seenStreams(column string) string {
	return `array(select p from unnest(` + column + `) p where p <> all ($3::text[])) as seen_` + column
}

// seenHandler is a condition of a query: the group and the subscription of o exist for
// the caller. Its parameters are the namespace and, third, the hidden streams.
const seenHandler = `not exists (
	select from posthorn.hidden_handlers($1::text, $3::text[]) h
	join posthorn.groups g on g.id = h.group_id
	where g.name = o.group_name and (h.subscription is null or h.subscription = o.subscription))`

// seeEvent fails if an event does not exist for the caller.
func (a *Admin) seeEvent(ctx context.Context, event int64) error {
	if len(a.hidden) == 0 {
		return nil
	}
	_, err := a.Event(ctx, event)
	return err
}

// thing is what a change is about: a schedule, for instance. It decides who may make the
// change, and who sees it in the audit log.
type thing struct {
	kind, name string
	group      string // of a subscription
	isNew      bool   // there need not be one of that name yet
	anything   bool   // all things that a filter selects
}

// noStream is for changes to things without a stream, such as jobs; anyStream is for changes
// to all that a filter selects.
var noStream, anyStream = thing{}, thing{anything: true}

func aStream(name string) thing   { return thing{kind: "stream", name: name} }
func aSchedule(name string) thing { return thing{kind: "schedule", name: name} }
func aWebhook(name string) thing  { return thing{kind: "webhook", name: name} }
func aGroup(name string) thing    { return thing{kind: "group", name: name} }
func anImport(name string) thing  { return thing{kind: "import", name: name} }

func aSubscription(group, name string) thing {
	return thing{kind: "subscription", name: name, group: group}
}

// made is the thing for a change that makes it, or changes it if it exists.
func (t thing) made() thing {
	t.isNew = true
	return t
}

// see fails if a thing does not exist for the caller, in the same way as for one that
// does not exist at all.
func (a *Admin) see(ctx context.Context, db DB, t thing) error {
	if len(a.hidden) == 0 || t.kind == "" {
		return nil
	}
	check := "posthorn.check_seen"
	if t.isNew {
		check = "posthorn.check_name_free"
	}
	return pg.Exec(ctx, db, "look up "+t.kind, "select "+check+"($1::text, $2::text[], $3::text, $4::text, $5::text)",
		a.namespace, a.hidden, t.kind, t.name, pg.Optional(t.group))
}

// streamsOf returns the streams that a thing is about, for the audit log; nil if that may
// be any.
func (a *Admin) streamsOf(ctx context.Context, db DB, t thing) ([]string, error) {
	if t.anything {
		return nil, nil
	}
	if t.kind == "" {
		return []string{}, nil
	}
	return pg.Value[[]string](ctx, db, "look up "+t.kind, "select posthorn.streams_of($1::text, $2::text, $3::text, $4::text)",
		a.namespace, t.kind, t.name, pg.Optional(t.group))
}

// checkFilter refuses a filter or a condition that has the name of a stream which the
// caller may not read.
func (a *Admin) checkFilter(ctx context.Context, s *Subscription) error {
	if len(a.hidden) == 0 || s == nil {
		return nil
	}
	params := s.Filter
	if s.Condition != "" {
		params = s.Params
	}
	named, err := pg.Value[[]string](ctx, a.db, "check filter", "select posthorn.named_streams($1::text, $2::jsonb, $3::text[])",
		pg.Optional(s.Condition), pg.Document(params), a.hidden)
	if err == nil && len(named) > 0 {
		err = errUnnamed(named[0], "admin")
	}
	return err
}

// checkRead refuses a filter or a condition that may match events which the caller may not
// read: the caller could not remove the subscription again.
func (a *Admin) checkRead(ctx context.Context, s Subscription) error {
	if len(a.hidden) == 0 {
		return nil
	}
	params := s.Filter
	if s.Condition != "" {
		params = s.Params
	}
	read, err := pg.Value[[]string](ctx, a.db, "check filter", "select posthorn.read_streams($1::text, $2::jsonb, $3::text[])",
		pg.Optional(s.Condition), pg.Document(params), a.hidden)
	if err == nil && len(read) > 0 {
		err = errTooWide("the subscription")
	}
	return err
}

// RestrictedStreams returns the streams of the namespace that only tokens which name
// them may read and publish to.
func (a *Admin) RestrictedStreams(ctx context.Context) ([]string, error) {
	return a.names(ctx, "list restricted streams", "select posthorn.restricted_streams($1::text)")
}

// An event that one caller claims from a group, or skips because it may not read it, is
// lost for all other callers. So a caller may use a group only if the group hands out no
// events of streams that are hidden from the caller.

// CheckClaim refuses a group that may hand out events which the caller may not read.
func (a *Admin) CheckClaim(ctx context.Context, group string) error {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return err
	}
	return a.refuseHidden(a.groupStreams(ctx, group))
}

// CheckLease refuses a lease that has events which the caller may not read, and each
// lease of a group that CheckClaim refuses. Without this check a caller could settle
// events that it may not read, by guessing the number of the lease. To the caller, there
// is no such lease.
func (a *Admin) CheckLease(ctx context.Context, lease int64) error {
	if len(a.hidden) == 0 {
		return nil
	}
	found, err := a.names(ctx, "look up lease", "select posthorn.lease_streams($1::text, $2::bigint, $3::text[])", lease, a.hidden)
	if err == nil && len(found) == 0 {
		var group string
		if group, err = a.leaseGroup(ctx, lease); err == nil {
			err = a.CheckClaim(ctx, group)
		}
	}
	if len(found) > 0 || errors.Is(err, pg.ErrNotFound) || errors.Is(err, pg.ErrRefused) {
		err = pg.LeaseLost("look up lease", lease)
	}
	return err
}

// ErrHiddenClaim is the error for a group that hands out events which the caller may not
// read.
func ErrHiddenClaim() error {
	return pg.Refused("the group hands out or holds events of restricted streams that the token does not name",
		"Use a token that names them, or a group whose subscriptions match other streams only.")
}

// checkDefine is CheckClaim for creating or changing a group. A new group hands out events
// of all streams: the caller could neither change nor delete it.
func (a *Admin) checkDefine(ctx context.Context, group string) error {
	if err := a.see(ctx, a.db, aGroup(group).made()); err != nil {
		return err
	}
	err := a.refuseHidden(a.groupStreams(ctx, group))
	if errors.Is(err, pg.ErrNotFound) {
		return errTooWide("a new group")
	}
	return err
}

// errTooWide is the error for a thing that would hand out events which the caller may not
// read: it could neither use nor remove it.
func errTooWide(thing string) error {
	return pg.Refused(thing+" would hand out events of restricted streams that the token does not name",
		"Make a group by a subscription whose filter names the streams that it is for, or use a token that names those streams.")
}

// checkRemove is checkDefine for deleting a group or one of its subscriptions. It also
// refuses if the group or subscription has retries, messages or dead letters of hidden
// streams, which would be deleted too.
func (a *Admin) checkRemove(ctx context.Context, group string, subscription *string) error {
	if len(a.hidden) == 0 {
		return nil
	}
	if err := a.refuseHidden(a.groupStreams(ctx, group)); err != nil {
		return err
	}
	return a.refuseHidden(a.names(ctx, "list streams that a group holds", "select posthorn.held_streams($1::text, $2::text, $3::text[], $4::text)",
		group, a.hidden, subscription))
}

func (a *Admin) groupStreams(ctx context.Context, group string) ([]string, error) {
	if len(a.hidden) == 0 {
		return nil, nil
	}
	return a.names(ctx, "list streams of group", "select posthorn.group_streams($1::text, $2::text, $3::text[])", group, a.hidden)
}

func (a *Admin) refuseHidden(found []string, err error) error {
	if err == nil && len(found) > 0 {
		err = ErrHiddenClaim()
	}
	return err
}

// unlessNew ignores that a group does not exist: a new group has no events that could be
// lost.
func unlessNew(err error) error {
	if errors.Is(err, pg.ErrNotFound) {
		return nil
	}
	return err
}

// leaseGroup returns the group that a lease of the namespace belongs to. It fails with
// posthorn.ErrLeaseLost when the lease has ended.
func (a *Admin) leaseGroup(ctx context.Context, lease int64) (string, error) {
	group, err := pg.Value[string](ctx, a.db, "look up lease", `
		select g.name from posthorn.leases l
		join posthorn.groups g on g.id = l.group_id
		join posthorn.namespaces n on n.id = g.namespace_id
		where l.id = $1::bigint and n.namespace = $2::text`, lease, a.namespace)
	if errors.Is(err, pgx.ErrNoRows) {
		err = pg.LeaseLost("look up lease", lease)
	}
	return group, err
}

// HiddenHandlers returns a function that tells whether a handler of a group, or with ""
// the group, does not exist for the caller.
func (a *Admin) HiddenHandlers(ctx context.Context) (isHidden func(group, handler string) bool, err error) {
	if len(a.hidden) == 0 {
		return func(string, string) bool { return false }, nil
	}
	type handler struct {
		Group        string `db:"name"`
		Subscription string `db:"subscription"`
	}
	found, err := rows[handler](ctx, a.db, "list hidden handlers", `
		select g.name, h.subscription from posthorn.hidden_handlers($1::text, $2::text[]) h
		join posthorn.groups g on g.id = h.group_id`, a.namespace, a.hidden)
	return func(group, name string) bool {
		return slices.Contains(found, handler{group, ""}) || slices.Contains(found, handler{group, name})
	}, err
}

func (a *Admin) names(ctx context.Context, verb, sql string, args ...any) ([]string, error) {
	return pg.Collect(ctx, a.db, verb, pgx.RowTo[string], sql, append([]any{a.namespace}, args...)...)
}
