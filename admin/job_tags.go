package admin

import (
	"context"
	"time"
)

// JobTag is a tag with its jobs that are due or run. A job with several tags counts for each.
type JobTag struct {
	Tag          string    `json:"tag"`
	Waiting      int64     `json:"waiting"`                // due jobs that no worker has, up to 10,000
	WaitingSince time.Time `json:"waiting_since,omitzero"` // when the first of them was due
	Running      int64     `json:"running"`
	Share        float64   `json:"share"`                 // part of all running jobs
	MaxRunning   *int64    `json:"max_running,omitempty"` // the limit of the tag, or of a pattern that matches it
	PausedAt     time.Time `json:"paused_at,omitzero"`
	Why          string    `json:"why,omitempty"` // the waiting ones do not run
	Verdict      string    `json:"verdict"`       // starved, not starved, paused, held back or no worker
	Standing     string    `json:"standing"`      // says that in a sentence, such as: it runs 2 of the 2 that tenant:* allows
}

// JobTags returns some tags, or without tags those that have the most due jobs: up to most of them.
func (a *Admin) JobTags(ctx context.Context, tags []string, most int) ([]JobTag, error) {
	return rows[JobTag](ctx, a.db, "list tags of jobs", "select * from posthorn.job_tags_now($1::text, $2::text[], $3::int)", a.namespace, tags, most)
}
