package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) find() {
	p.screen(Screen{Path: "find", Show: findAnything})
}

// hit is a thing that the search box has found.
type hit struct {
	Kind, Name, Link string
	Now              *admin.JobTag // the jobs of a tag
	Among            bool          // only some of the things were looked at, or the page lists others too
}

// sole is the page of the only hit, "" if there are several or others may have been left out.
func sole(hits []hit) string {
	if len(hits) == 1 && !hits[0].Among {
		return hits[0].Link
	}
	return ""
}

// mostHits bounds the list of each kind of thing.
const mostHits = 20

// someJobs bounds the jobs with a text that are found.
const someJobs = 5

// findJobsBy looks for tags of jobs, and for a text in the titles and the payloads of the newest jobs.
func findJobsBy(ctx context.Context, r *Request, q string) ([]hit, error) {
	var hits []hit
	tags, err := r.Admin.FindJobTags(ctx, q, mostHits)
	if err != nil {
		return nil, err
	}
	for _, t := range tags {
		hits = append(hits, hit{Kind: "tag", Name: t, Link: r.Link("jobs", "tag", t)})
	}
	if len(tags) > 0 {
		now, err := r.Admin.JobTags(ctx, tags, len(tags))
		if err != nil {
			return nil, err
		}
		for i := range now {
			hits[slices.Index(tags, now[i].Tag)].Now = &now[i]
		}
	}
	titled, among, err := r.newestJobs(ctx, admin.JobSearch{JobFilter: admin.JobFilter{Limit: mostHits}, Title: q})
	if err != nil {
		return nil, err
	}
	for _, h := range titleHits(r, q, titled) {
		h.Among = among
		hits = append(hits, h)
	}
	jobs, _, err := r.newestJobs(ctx, admin.JobSearch{JobFilter: admin.JobFilter{Limit: someJobs}, Payload: q})
	for _, j := range jobs {
		hits = append(hits, hit{Kind: "job with it in its payload", Name: fmt.Sprintf("%d %s: %s", j.ID, j.Title, j.State), Link: r.Link("job", "id", j.ID), Among: true}) // an event may have it too
	}
	return hits, err
}

// newestJobs searches the newest jobs, and tells whether there are older ones. A text that can be in no job finds none.
func (r *Request) newestJobs(ctx context.Context, s admin.JobSearch) (jobs []admin.JobStatus, among bool, err error) {
	jobs, lookedTo, err := r.Admin.SearchJobs(ctx, s, 0)
	_, err = r.inForm(ctx, err)
	return jobs, lookedTo > 0, err
}

// titleHits are jobs with a text in their title, those first of which it is the whole title. Of several, the last hit is their list.
func titleHits(r *Request, q string, jobs []admin.JobStatus) []hit {
	other := func(j admin.JobStatus) int {
		if j.Title == q {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(jobs, func(a, b admin.JobStatus) int { return cmp.Compare(other(a), other(b)) })
	var hits []hit
	for _, j := range jobs[:min(len(jobs), someJobs)] {
		hits = append(hits, hit{Kind: "job", Name: fmt.Sprintf("%d %s: %s", j.ID, j.Title, j.State), Link: r.Link("job", "id", j.ID)})
	}
	if len(jobs) > 1 {
		hits = append(hits, hit{Kind: "jobs", Name: "all with it in their title", Link: r.Link("jobs", "title", q)})
	}
	return hits
}

// findWorkers looks for workers by their id or name.
func findWorkers(ctx context.Context, r *Request, q string) ([]hit, error) {
	workers, err := r.Admin.FindWorkers(ctx, q, mostHits)
	var hits []hit
	for _, w := range workers {
		name := w.ID
		if w.DisplayName != "" && w.DisplayName != w.ID {
			name += " " + w.DisplayName
		}
		if w.Jobs+w.Leases == 0 {
			hits = append(hits, hit{Kind: "node", Name: name + ": idle", Link: r.Link("nodes"), Among: true})
			continue
		}
		var has []string
		if w.Jobs > 0 {
			has = append(has, things(w.Jobs, "job"))
		}
		if w.Leases > 0 {
			has = append(has, things(w.Leases, "lease"))
		}
		hits = append(hits, hit{Kind: "worker", Name: name + ": " + strings.Join(has, ", "), Link: r.Link("busy", "worker", w.ID)})
	}
	return hits, err
}

// findAnything looks for a number among events, jobs and dead letters, and for a text
// in the names of groups and workers, in tags, titles and payloads of jobs.
func findAnything(ctx context.Context, r *Request) (*View, error) {
	q := strings.TrimSpace(r.Value("q"))
	var hits []hit
	if id, err := strconv.ParseInt(strings.TrimPrefix(q, "#"), 10, 64); err == nil && id > 0 {
		found, err := findNumber(ctx, r, id)
		if err != nil {
			return nil, err
		}
		hits = append(hits, found...)
	}
	if q != "" {
		groups, err := r.Admin.GroupNames(ctx, q, "", mostHits)
		if err != nil {
			return nil, err
		}
		for _, name := range groups {
			hits = append(hits, hit{Kind: "group", Name: name, Link: r.Link("group", "name", name)})
		}
		for _, find := range []func(context.Context, *Request, string) ([]hit, error){findWorkers, findJobsBy} {
			found, err := find(ctx, r, q)
			if err != nil {
				return nil, err
			}
			for _, h := range found { // a job may have the number, the title and the payload
				if !slices.ContainsFunc(hits, func(x hit) bool { return x.Link == h.Link && h.Kind != "node" }) {
					hits = append(hits, h)
				}
			}
		}
	}
	return &View{Title: "Find", GoTo: sole(hits), Data: struct {
		Q    string
		Hits []hit
	}{q, hits}}, nil
}

func findNumber(ctx context.Context, r *Request, id int64) ([]hit, error) {
	var hits []hit
	e, err := r.Admin.Event(ctx, id)
	if err == nil {
		hits = append(hits, hit{Kind: "event", Name: strconv.FormatInt(id, 10) + " " + e.Type, Link: r.Link("event", "id", id)})
	} else if !r.isMissing(ctx, err) {
		return nil, err
	}
	j, err := r.Admin.Job(ctx, id)
	if err == nil {
		hits = append(hits, hit{Kind: "job", Name: strconv.FormatInt(id, 10) + " " + j.Title, Link: r.Link("job", "id", id)})
	} else if !r.isMissing(ctx, err) {
		return nil, err
	}
	for letter, err := range r.Admin.DeadLetters(ctx, admin.DeadLetterFilter{IDs: []int64{id}}) {
		if err != nil {
			return nil, err
		}
		hits = append(hits, hit{Kind: "dead letter", Name: strconv.FormatInt(id, 10) + " " + letter.Type, Link: r.Link("dead-letter", "id", id)})
	}
	return hits, nil
}
