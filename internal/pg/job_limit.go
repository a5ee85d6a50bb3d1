package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// JobLimit is how many jobs with a tag may run. Its zero value allows any number.
type JobLimit struct {
	MaxRunning *int          // at once
	MaxStarted *int          // in a period
	Period     time.Duration // with MaxStarted
}

// SetJobLimit sets how many jobs with a tag may run at once, and how many may
// start in a period.
func SetJobLimit(ctx context.Context, db DB, namespace, tag string, l JobLimit) error {
	var per *string
	if l.Period != 0 {
		text := period(l.Period)
		per = &text
	}
	return run(ctx, db, "set job limit", "select posthorn.set_job_limit($1::text, $2::text, $3::int, $4::int, $5::text::interval)",
		namespace, tag, l.MaxRunning, l.MaxStarted, per)
}

// PauseJobTag stops handing out jobs with a tag. Those that workers have go on.
func PauseJobTag(ctx context.Context, db DB, namespace, tag string) error {
	return run(ctx, db, "pause tag", "select posthorn.pause_job_tag($1::text, $2::text)", namespace, tag)
}

// ResumeJobTag hands out jobs with a tag again, and reports whether it was
// paused.
func ResumeJobTag(ctx context.Context, db DB, namespace, tag string) (bool, error) {
	return one[bool](ctx, db, "resume tag", "select posthorn.resume_job_tag($1::text, $2::text)", namespace, tag)
}

// JobLimitStatus is a tag that is paused or has limits, and what it has used.
type JobLimitStatus struct {
	Tag           string     `json:"tag"`
	MaxRunning    *int       `json:"max_running,omitempty"`
	MaxStarted    *int       `json:"max_started,omitempty"`
	PeriodSeconds *float64   `json:"period_seconds,omitempty"`
	PausedAt      *time.Time `json:"paused_at,omitempty"`
	Running       int64      `json:"running"`
	Started       int64      `json:"started"` // in the last period
	HeldBack      int64      `json:"held_back"`
}

// ListJobLimits returns the tags of a namespace that are paused or have limits.
func ListJobLimits(ctx context.Context, db DB, namespace string) ([]JobLimitStatus, error) {
	return list(ctx, db, "list job limits", pgx.RowToStructByPos[JobLimitStatus], `
		select tag, max_running, max_started, extract(epoch from period)::float8, paused_at, running, started, parked
		from posthorn.list_job_limits($1::text)`, namespace)
}
