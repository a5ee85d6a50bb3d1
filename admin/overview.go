package admin

import (
	"context"
	"time"
)

// WorstGroup is a group, with the numbers that tell whether it is in trouble.
type WorstGroup struct {
	Group       string   `json:"group" db:"group_name"`
	Kind        string   `json:"kind"` // group, projection, relay, archive or webhooks
	Order       string   `json:"order" db:"ordering"`
	Paused      bool     `json:"paused"`
	LagSeconds  float64  `json:"lag_seconds"`          // age of the first event that was not handed out to it
	LagBefore   *float64 `json:"lag_before,omitempty"` // the same about ten minutes ago; nil: not known
	IdleSeconds float64  `json:"idle_seconds"`         // since a worker claimed events
	LagEvents   int64    `json:"lag_events"`           // events that were not handed out to it; an estimate beyond 10,000
	Leases      int64    `json:"leases"`
	Retries     int64    `json:"retries"`
	DeadLetters int64    `json:"dead_letters"`
	Readers     int64    `json:"readers"` // processes that read it
}

// WorstGroups returns the groups that are furthest behind or have the most failures.
func (a *Admin) WorstGroups(ctx context.Context, limit int) ([]WorstGroup, error) {
	return rows[WorstGroup](ctx, a.db, "list worst groups", "select * from posthorn.worst_groups($1::text, $2::int, $3::text[])", a.namespace, limit, list(a.hidden))
}

// Summary has numbers about a namespace. Events, jobs and delayed events are counted up
// to 10,000.
type Summary struct {
	Groups           int64     `json:"groups"`
	Streams          int64     `json:"streams"`
	LastEvent        int64     `json:"last_event"` // its id; 0: there is none
	LastEventAt      time.Time `json:"last_event_at"`
	Delayed          int64     `json:"delayed"`
	NextDelayedAt    time.Time `json:"next_delayed_at"`
	JobsReady        int64     `json:"jobs_ready"`
	JobsReadySince   time.Time `json:"jobs_ready_since"`
	JobsWaiting      int64     `json:"jobs_waiting"`  // for their time
	JobsBlocked      int64     `json:"jobs_blocked"`  // until other jobs are completed
	JobsAwaiting     int64     `json:"jobs_awaiting"` // of those that wait for their time: for an event, until then
	JobsRunning      int64     `json:"jobs_running"`
	JobsStalled      int64     `json:"jobs_stalled"`
	Schedules        int64     `json:"schedules"`
	SchedulesPaused  int64     `json:"schedules_paused"`
	SchedulesFailing int64     `json:"schedules_failing"`
	NextSchedule     string    `json:"next_schedule"`
	NextScheduleAt   time.Time `json:"next_schedule_at"`
	Relays           int64     `json:"relays"`
	Archives         int64     `json:"archives"`
	Projections      int64     `json:"projections"`
	Imports          int64     `json:"imports"`
	Nodes            int64     `json:"nodes"`     // that are alive
	LogBytes         int64     `json:"log_bytes"` // of all namespaces
	LogSince         time.Time `json:"log_since"` // where the oldest partition begins
	Now              time.Time `json:"now"`       // of the database
}

// Summary returns numbers about the namespace.
func (a *Admin) Summary(ctx context.Context) (Summary, error) {
	found, err := rows[Summary](ctx, a.db, "sum up", "select *, log_bytes::bigint as log_bytes from posthorn.summary($1::text, $2::text[])", a.namespace, list(a.hidden))
	return only(a, found, err, "namespace", a.namespace, "Define it first.")
}

// Rate counts the events of a namespace in an interval.
type Rate struct {
	At        time.Time `json:"at"`        // where the interval begins
	Seconds   float64   `json:"seconds"`   // its length
	Published float64   `json:"published"` // whole numbers, but where a sample is part of two intervals
	Handled   float64   `json:"handled"`   // events that groups have passed, all together
	Failed    float64   `json:"failed"`    // attempts
}

// Rates returns the rates of a period of at most 8 days until now, in at most 120 intervals,
// oldest first. It leaves out intervals without events. The last interval has only begun.
func (a *Admin) Rates(ctx context.Context, period time.Duration, intervals int) ([]Rate, error) {
	return rows[Rate](ctx, a.db, "list rates", "select * from posthorn.rates($1::text, $2::interval, $3::int)", a.namespace, period, intervals)
}

// GroupRate counts the events that a group has passed in an interval, and says how far it
// was behind.
type GroupRate struct {
	At         time.Time `json:"at"`      // where the interval begins
	Seconds    float64   `json:"seconds"` // its length
	Passed     float64   `json:"passed"`
	LagSeconds float64   `json:"lag_seconds"` // at most
}

// GroupRates returns the rates of a group until the last sample, as [Admin.Rates] does.
func (a *Admin) GroupRates(ctx context.Context, group string, period time.Duration, intervals int) ([]GroupRate, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return nil, err
	}
	return rows[GroupRate](ctx, a.db, "list rates of group", "select * from posthorn.group_rates($1::text, $2::text, $3::interval, $4::int)", a.namespace, group, period, intervals)
}

// SeekPreview has the effects of [Admin.Seek]. Events are counted up to 10,000, and
// estimated beyond.
type SeekPreview struct {
	Again            int64 `json:"again"`             // events that the group would get again
	Skipped          int64 `json:"skipped"`           // events that it would never get
	Leases           int64 `json:"leases"`            // that workers would lose
	HasSubscriptions bool  `json:"has_subscriptions"` // it gets only events that match one of them
}

// PreviewSeek returns the effects that [Admin.Seek] would have now.
func (a *Admin) PreviewSeek(ctx context.Context, group string, to Moment) (SeekPreview, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return SeekPreview{}, err
	}
	found, err := rows[SeekPreview](ctx, a.db, "preview seek", "select * from posthorn.preview_seek($1::text, $2::text, $3::timestamptz)",
		a.namespace, group, to)
	return only(a, found, err, "group", group, makeGroup)
}

// Findings returns the results of the checks that the database makes of itself: those of
// the installation, and those of the namespace. [Doctor] makes more checks.
func (a *Admin) Findings(ctx context.Context) ([]Finding, error) {
	return rows[Finding](ctx, a.db, "examine the namespace", `
		select *, posthorn.finding_filter(kind, examined_at) as filter
		from posthorn.diagnose(of_namespace => $1::text, hidden_streams => $2::text[])`, a.namespace, list(a.hidden))
}
