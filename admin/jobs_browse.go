package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// JobSearch selects jobs for people who look for some. It uses status, state, tags and limit of
// the filter.
type JobSearch struct {
	JobFilter
	Title   string    `query:"title" flag:"title" doc:"Only jobs with this text in their title"`
	Error   string    `query:"error" flag:"error" doc:"Only jobs that failed for good or were cancelled with this text in their error"`
	Payload string    `query:"payload" flag:"payload" doc:"Only jobs whose payload contains this JSON object or array, or has this text"`
	From    time.Time `query:"enqueued_from" flag:"from" doc:"Only jobs that were enqueued at this time or later"`
	Before  time.Time `query:"enqueued_before" flag:"before" doc:"Only jobs that were enqueued before this time"`
	Ended   time.Time `query:"ended_from" flag:"ended-from" doc:"Only jobs that were completed, failed for good or were cancelled at this time or later"`
}

// Narrow tells whether the search looks for more than status and tags, by which jobs are
// changed.
func (s JobSearch) Narrow() bool {
	return s.State != "" || s.Title != "" || s.Error != "" || s.Payload != "" || !s.From.IsZero() || !s.Before.IsZero() || !s.Ended.IsZero()
}

// BrowseJobs is [Admin.SearchJobs] for a filter. Of that it uses status, state, tags and
// limit.
func (a *Admin) BrowseJobs(ctx context.Context, f JobFilter, before int64) (jobs []JobStatus, lookedTo int64, err error) {
	return a.SearchJobs(ctx, JobSearch{JobFilter: f}, before)
}

// SearchJobs returns jobs with numbers below before, newest first; before 0 means the
// newest. It looks at a bounded number of jobs: lookedTo is the number below which it did not
// look, 0 if it looked at all.
func (a *Admin) SearchJobs(ctx context.Context, s JobSearch, before int64) (jobs []JobStatus, lookedTo int64, err error) {
	ids, lookedTo, err := a.findJobs(ctx, s, before)
	if err != nil || len(ids) == 0 {
		return nil, lookedTo, err
	}
	jobs, err = rows[JobStatus](ctx, a.db, "browse jobs", "select * from posthorn.get_jobs($1::text, $2::bigint[])", a.namespace, ids)
	if err == nil {
		jobs, err = a.explainWaits(ctx, jobs)
	}
	return jobs, lookedTo, err
}

// findJobs is SearchJobs for the numbers of the jobs.
func (a *Admin) findJobs(ctx context.Context, s JobSearch, before int64) (ids []int64, lookedTo int64, err error) {
	type found struct {
		Job      *int64 `db:"job"`
		LookedTo *int64 `db:"looked_to"`
	}
	payload, err := s.wantedPayload()
	if err != nil {
		return nil, 0, err
	}
	page, err := rows[found](ctx, a.db, "browse jobs", `select * from posthorn.search_jobs($1::text, $2::text, $3::text[], $4::bigint, $5::int,
		title => $6::text, error => $7::text, payload => $8::jsonb, enqueued_from => $9::timestamptz, enqueued_before => $10::timestamptz, state => $11::text, ended_from => $12::timestamptz)`,
		a.namespace, pg.Optional(s.Status), list(s.Tags), pg.Optional(before), cmp.Or(s.Limit, 20),
		pg.Optional(s.Title), pg.Optional(s.Error), pg.Document(payload), pg.Optional(s.From), pg.Optional(s.Before), pg.Optional(s.State), pg.Optional(s.Ended))
	if err != nil {
		return nil, 0, err
	}
	for _, f := range page {
		if f.Job != nil {
			ids = append(ids, *f.Job)
		}
		if f.LookedTo != nil {
			lookedTo = *f.LookedTo
		}
	}
	return ids, lookedTo, nil
}

// wantedPayload is the payload of a search as JSON. A text that does not look like an object or an array is a JSON string.
func (s JobSearch) wantedPayload() (json.RawMessage, error) {
	text := strings.TrimSpace(s.Payload)
	switch {
	case text == "":
		return nil, nil
	case json.Valid([]byte(text)):
		return json.RawMessage(text), nil
	case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
		return nil, pg.Translate("browse jobs", pg.Invalid("the payload to look for is not valid JSON",
			`It looks like {"order": 7}. A word without brackets, such as o-7, is looked for in the text of payloads.`))
	}
	return json.Marshal(text)
}

// foundAtOnce is the number of jobs that a part of an action changes.
const foundAtOnce = 200

// CountFoundJobs returns the number of jobs with numbers below before that a search finds, up to most or until it has
// looked for a while: more tells whether there may be further ones.
func (a *Admin) CountFoundJobs(ctx context.Context, s JobSearch, before, most int64, patience time.Duration) (n int64, more bool, err error) {
	s.Limit = 1000
	for began := time.Now(); ; {
		ids, next, err := a.nextFound(ctx, s, before)
		if n += int64(len(ids)); err != nil || next == 0 {
			return n, false, err
		}
		if n >= most || time.Since(began) > patience {
			return n, true, nil
		}
		before = next
	}
}

// nextFound returns jobs of a search, and the number below which it goes on, 0 at the end.
func (a *Admin) nextFound(ctx context.Context, s JobSearch, before int64) (ids []int64, next int64, err error) {
	ids, next, err = a.findJobs(ctx, s, before)
	if len(ids) > 0 && len(ids) == s.Limit {
		next = ids[len(ids)-1]
	}
	return ids, next, err
}

// SteerFoundJobs retries, cancels or deletes the next jobs that a search finds, newest first, with numbers below before.
// It returns the number below which the next call goes on, 0 at the end, and how many jobs it has changed.
func (a *Admin) SteerFoundJobs(ctx context.Context, action string, s JobSearch, before int64, reason, jobsAfter string) (next, jobs int64, err error) {
	s.Limit = foundAtOnce
	ids, next, err := a.nextFound(ctx, s, before)
	if err != nil || len(ids) == 0 {
		return next, 0, err
	}
	jobs, err = a.SteerChosenJobs(ctx, action, ids, reason, jobsAfter)
	return next, jobs, err
}

// SteerChosenJobs retries, cancels or deletes jobs, and returns how many it has changed: it leaves out those whose status
// does not allow it. jobsAfter is as for [Admin.CancelJobsAnd].
func (a *Admin) SteerChosenJobs(ctx context.Context, action string, ids []int64, reason, jobsAfter string) (int64, error) {
	return changed[int64](ctx, a, noStream, entry{action + "-jobs", "", map[string]any{"ids": ids}},
		"select posthorn.steer_chosen_jobs($1::text, $2::text, $3::bigint[], $4::text, $5::text)",
		a.namespace, action, ids, pg.Optional(pg.Storable(reason)), pg.Optional(jobsAfter))
}

// JobCount is the number of jobs in a state, see [JobStatus].State. Jobs that are stalled are
// counted as running, too. Completed ones are not counted.
type JobCount struct {
	State string `json:"state"`
	Jobs  int64  `json:"jobs"`
}

// JobCounts returns the number of jobs in each state, counted up to most.
func (a *Admin) JobCounts(ctx context.Context, most int) ([]JobCount, error) {
	return rows[JobCount](ctx, a.db, "count jobs", "select * from posthorn.job_counts($1::text, $2::int)", a.namespace, most)
}

// CountJobsToSteer returns the number of jobs of a status and tags that [Admin.SteerJobs]
// would find. It looks at a bounded number of jobs: more tells whether there may be
// further ones.
func (a *Admin) CountJobsToSteer(ctx context.Context, f JobFilter) (n int64, more bool, err error) {
	type count struct {
		Jobs int64 `db:"jobs"`
		More bool  `db:"more"`
	}
	found, err := rows[count](ctx, a.db, "count jobs", "select * from posthorn.count_jobs_to_steer($1::text, $2::text, $3::text[])", a.namespace, f.Status, list(f.Tags))
	if err != nil {
		return 0, false, err
	}
	return found[0].Jobs, found[0].More, nil
}

// RetryJobs starts all jobs of a status and tags again, as [Admin.ResetJob] does, and returns
// their number. Jobs that were enqueued after the call has begun are left alone. Many jobs are
// changed in several transactions: after an error some have been changed.
func (a *Admin) RetryJobs(ctx context.Context, f JobFilter, reason string) (int64, error) {
	return a.steerAll(ctx, entry{"retry-jobs", f.Status, map[string]any{"tags": f.Tags}}, f, reason, "")
}

// CancelJobs ends all jobs of a status and tags, see [Admin.RetryJobs] and [Admin.CancelJob].
func (a *Admin) CancelJobs(ctx context.Context, f JobFilter, reason string) (int64, error) {
	return a.CancelJobsAnd(ctx, f, reason, "")
}

// CancelJobsAnd is [Admin.CancelJobs], and says whether the jobs that wait for those
// end too, as [Admin.CancelJobAnd] does.
func (a *Admin) CancelJobsAnd(ctx context.Context, f JobFilter, reason, jobsAfter string) (int64, error) {
	detail := map[string]any{"tags": f.Tags}
	if jobsAfter != "" {
		detail["jobs_after"] = jobsAfter
	}
	return a.steerAll(ctx, entry{"cancel-jobs", f.Status, detail}, f, reason, jobsAfter)
}

// DeleteJobs deletes all jobs of a status and tags, see [Admin.RetryJobs] and [Admin.DeleteJob].
func (a *Admin) DeleteJobs(ctx context.Context, f JobFilter) (int64, error) {
	return a.steerAll(ctx, entry{"delete-jobs", f.Status, map[string]any{"tags": f.Tags}}, f, "", "")
}

// steerAll does an action to all jobs of a status and tags, part by part. The audit log has
// one entry for all parts.
func (a *Admin) steerAll(ctx context.Context, e entry, f JobFilter, reason, jobsAfter string) (jobs int64, err error) {
	if f.Stalled != "" || f.State != "" || f.Limit != 0 || f.Offset != 0 {
		return 0, pg.Translate(e.verb(), pg.Invalid("jobs are selected by status and tags only", "Leave the other fields of the filter out."))
	}
	newest, _, err := a.BrowseJobs(ctx, JobFilter{Limit: 1}, 0)
	if err != nil || len(newest) == 0 {
		return 0, err
	}
	last := newest[0].ID
	err = a.inParts(ctx, e, func(a *Admin) error {
		for after := int64(0); ; {
			next, n, err := a.SteerJobs(ctx, strings.TrimSuffix(e.name, "-jobs"), f, after, last, reason, jobsAfter)
			if jobs += n; err != nil || next == 0 {
				return err
			}
			after = next
		}
	})
	return jobs, err
}

// inParts makes an action that has a transaction for each part. If there is an actor, the
// audit log has one entry for all parts, which shows how far the action is.
func (a *Admin) inParts(ctx context.Context, e entry, act func(*Admin) error) error {
	if a.actor == "" || a.action != 0 {
		return act(a)
	}
	id, err := a.BeginAction(ctx, e.name, e.subject, e.detail, 0)
	if err != nil {
		return err
	}
	err = act(a.Part(id))
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if ended := a.EndAction(ending, id, reasonOf(err)); err == nil {
		err = ended
	}
	return err
}

// reasonOf is the text of an error, if there is one.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// SteerJobs retries, cancels or deletes the next jobs of a status and tags with numbers
// from after to last. It returns the number after which the next call goes on, 0 at the
// end, and how many jobs it has changed. jobsAfter is as for [Admin.CancelJobsAnd].
func (a *Admin) SteerJobs(ctx context.Context, action string, f JobFilter, after, last int64, reason, jobsAfter string) (next, jobs int64, err error) {
	type part struct {
		Next *int64 `db:"next"`
		Jobs int64  `db:"jobs"`
	}
	jobs, err = a.recorded(ctx, noStream, entry{action + "-jobs", f.Status, map[string]any{"tags": f.Tags}}, func(db DB) (int64, error) {
		found, err := rows[part](ctx, db, action+" jobs", "select * from posthorn.steer_jobs($1::text, $2::text, $3::text, $4::text[], $5::bigint, $6::bigint, $7::text, jobs_after => $8::text)",
			a.namespace, action, strings.ToUpper(f.Status), list(f.Tags), after, last, pg.Optional(pg.Storable(reason)), pg.Optional(jobsAfter))
		if err != nil {
			return 0, err
		}
		if found[0].Next != nil {
			next = *found[0].Next
		}
		return found[0].Jobs, nil
	})
	return next, jobs, err
}
