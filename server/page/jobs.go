package page

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// mostCounted bounds the numbers of jobs that a page counts.
const mostCounted = 10_000

func (p *Pages) jobs() {
	p.screen(Screen{Path: "jobs", Live: true, Show: p.listJobs})
	p.job()
	p.stuck()
	p.jobLimits()
	p.jobRates()
	p.steerJobs(op.RetryJobs.Many(), op.RetryJobs.More)
	p.steerJobs(op.CancelJobs.Many(), op.CancelJobs.More)
	p.steerJobs(op.DeleteJobs.Many(), op.DeleteJobs.More)
}

func (p *Pages) steerJobs(o op.Any, advice string) {
	about, selects := o.Describe(), append(slices.Clone(searchFields), "id")
	p.bulk(Bulk{
		Path: about.Page, Name: about.Name, Scope: string(about.Scope), Verb: sentence(about.Verb), Noun: about.Topic.One, Advice: advice,
		Back: "jobs", BackWith: []any{"id", ""}, Filter: selects, // the list has no filter by id
		Choices: slices.DeleteFunc(op.Fields(o.New()), func(f op.Field) bool { return f.Form == "" || slices.Contains(selects, f.Form) }),
		Match: func(ctx context.Context, r *Request, filter url.Values) (matched, error) {
			if filter.Get("id") != "" {
				return matchChosen(filter)
			}
			status := steeredStatus(filter)
			if about.Verb == "delete" && status != admin.JobPending || about.Verb == "cancel" && status == admin.JobFailed {
				return matched{}, invalid("choose another status first", "Pending jobs can be deleted, and those that are pending or processing be cancelled.")
			}
			return matchJobs(ctx, r, filter)
		},
		Part: func(ctx context.Context, a *admin.Admin, filter url.Values, after, last int64) (int64, error) {
			return steerPart(ctx, a, about.Verb, filter, after, last)
		},
	})
}

// fromThePage is the reason of actions on many jobs.
const fromThePage = "from the page"

// steerPart changes the next jobs of a filter, or those that were chosen. A search goes back from the last one.
func steerPart(ctx context.Context, a *admin.Admin, verb string, filter url.Values, after, last int64) (next int64, err error) {
	jobsAfter := filter.Get("jobs_after")
	ids, err := chosenIDs(filter)
	if err != nil {
		return 0, err
	}
	if len(ids) > 0 {
		_, err = a.SteerChosenJobs(ctx, verb, ids, fromThePage, jobsAfter)
		return 0, err
	}
	s, err := steeredSearch(filter)
	if err != nil {
		return 0, err
	}
	if s.Narrow() {
		next, _, err = a.SteerFoundJobs(ctx, verb, s, cmp.Or(after, last+1), fromThePage, jobsAfter)
	} else {
		next, _, err = a.SteerJobs(ctx, verb, s.JobFilter, after, last, fromThePage, jobsAfter)
	}
	return next, err
}

// searchFields are the parameters of a search.
var searchFields = append(op.Forms(&admin.JobSearch{}), "state")

// steeredSearch reads the parameters of a search, whose status is that of its state if it has none.
func steeredSearch(filter url.Values) (admin.JobSearch, error) {
	s, err := jobSearch(&Request{values: filter})
	s.Status = steeredStatus(filter)
	return s, err
}

// steeredStatus is the status of the jobs of a filter, "" if it may be any. Of a job that waits the state says why.
func steeredStatus(filter url.Values) string {
	state := filter.Get("state")
	switch {
	case filter.Get("status") != "" || state == "":
		return filter.Get("status")
	case state == "running":
		return admin.JobProcessing
	case slices.Contains([]string{"completed", "failed", "cancelled"}, state):
		return strings.ToUpper(state)
	}
	return admin.JobPending
}

// chosenIDs are the jobs that were chosen in the list.
func chosenIDs(filter url.Values) (ids []int64, err error) {
	var chosen struct {
		IDs []int64 `json:"id" doc:"The jobs"`
	}
	err = (&Request{values: filter}).Fill(&chosen)
	slices.Sort(chosen.IDs)
	return slices.Compact(chosen.IDs), err
}

func matchChosen(filter url.Values) (matched, error) {
	ids, err := chosenIDs(filter)
	if err != nil || len(ids) == 0 {
		return matched{}, err
	}
	return matched{N: int64(len(ids)), Last: ids[len(ids)-1]}, nil
}

// jobStates are the choices of the filter.
var jobStates = []string{admin.JobPending, admin.JobProcessing, admin.JobFailed, admin.JobCancelled, admin.JobCompleted}

// choicesOf returns the values that a field of an input may have.
func choicesOf(in any, field string) []string {
	for _, f := range op.Fields(in) {
		if f.Name == field {
			return f.Enum
		}
	}
	return nil
}

func (p *Pages) listJobs(ctx context.Context, r *Request) (*View, error) {
	before, err := r.optionalNumber("before")
	if err != nil {
		return nil, err
	}
	search, wrong := jobSearch(r)
	var jobs []admin.JobStatus
	var lookedTo int64
	if wrong == nil {
		jobs, lookedTo, wrong = findJobs(ctx, r, search, before)
	}
	problem, err := r.inForm(ctx, wrong)
	if err != nil {
		return nil, err
	}
	jobs, more := pageOf(r, jobs, "before", func(j admin.JobStatus) any { return j.ID })
	var on further
	if more.Next == "" && lookedTo > 0 {
		if on, err = furtherJobs(ctx, r, lookedTo); err != nil {
			return nil, err
		}
		on.GoesOn = len(jobs) == 0
	}
	tabs, err := tabsOf(ctx, r)
	if err != nil {
		return nil, err
	}
	var tags []admin.JobTag
	if wrong == nil && len(search.Tags) > 0 {
		if tags, err = r.Admin.JobTags(ctx, search.Tags, len(search.Tags)); err != nil {
			return nil, err
		}
	}
	all := pairs(r.Filter(searchFields...))
	return &View{Title: "Jobs", Problem: problem, Data: struct {
		Jobs   []admin.JobStatus
		Tabs   []tab
		States []string // of the filter: statuses
		Whys   []string // and states
		Paging paging
		Search further
		Status string // of all jobs of the filter, on which actions on all depend
		Filter []any  // as names and values in turn
		Tags   []admin.JobTag
	}{jobs, tabs, jobStates, choicesOf(&admin.JobFilter{}, "state"), more, on, steeredStatus(r.values), all, tags}}, nil
}

// tab leads to the jobs of a state.
type tab struct {
	State   string
	Link    string // empty if no list has just these
	Jobs    string // how many there are; empty if nobody has counted them
	Current bool
	Bad     bool // nobody wants such jobs, and there are some
}

// tabsOf makes the tabs of the list. The numbers are those of all jobs of the namespace, so there are none beside a list that something
// narrows: its tabs keep that.
func tabsOf(ctx context.Context, r *Request) (tabs []tab, err error) {
	current := r.Value("state")
	if len(r.Filter(slices.DeleteFunc(slices.Clone(searchFields), func(name string) bool { return name == "state" || name == "status" })...)) > 0 {
		tabs = []tab{{State: "all", Link: r.Same("state", "", "status", "", "before", ""), Current: current == "" && r.Value("status") == ""}}
		for _, state := range choicesOf(&admin.JobFilter{}, "state") {
			tabs = append(tabs, tab{State: state, Link: r.Same("state", state, "status", "", "before", ""), Current: state == current})
		}
		return tabs, nil
	}
	counts, err := r.Admin.JobCounts(ctx, mostCounted)
	for _, c := range counts {
		t := tab{State: c.State, Link: r.Link("jobs", "state", c.State), Jobs: upTo(c.Jobs, mostCounted), Current: c.State == current, Bad: c.State == "failed" && c.Jobs > 0}
		if c.State == "stalled" {
			t.State, t.Link, t.Bad = "of these stalled", "", c.Jobs > 0
		}
		tabs = append(tabs, t)
	}
	return tabs, err
}

// jobSearch reads the parameters of a search.
func jobSearch(r *Request) (s admin.JobSearch, err error) {
	err = r.Fill(&s)
	s.State = r.Value("state")
	s.Limit = pageLength + 1
	return s, err
}

// findJobs looks for jobs until it has found some, or for a moment. It returns the number
// below which to go on, 0 if it has looked at all.
func findJobs(ctx context.Context, r *Request, s admin.JobSearch, before int64) (jobs []admin.JobStatus, next int64, err error) {
	return op.Until(searchFor, before, func(before int64) ([]admin.JobStatus, int64, error) {
		return r.Admin.SearchJobs(ctx, s, before)
	})
}

// furtherJobs is the way on from a job, with the number of the newest one.
func furtherJobs(ctx context.Context, r *Request, from int64) (further, error) {
	newest, _, err := r.Admin.BrowseJobs(ctx, admin.JobFilter{Limit: 1}, 0)
	on := further{Link: r.Same("before", from), At: from}
	if len(newest) > 0 {
		on.Newest = max(newest[0].ID, from)
	}
	return on, err
}

func matchJobs(ctx context.Context, r *Request, filter url.Values) (m matched, err error) {
	s, err := steeredSearch(filter)
	if err != nil {
		return m, err
	}
	if s.Status != admin.JobPending && s.Status != admin.JobProcessing && s.Status != admin.JobFailed {
		return m, invalid("choose a status first", "Jobs that are PENDING, PROCESSING or FAILED can be changed.")
	}
	newest, _, err := r.Admin.BrowseJobs(ctx, admin.JobFilter{Limit: 1}, 0)
	if err != nil || len(newest) == 0 {
		return m, err
	}
	m.Last = newest[0].ID
	if s.Narrow() {
		m.N, m.More, err = r.Admin.CountFoundJobs(ctx, s, m.Last+1, mostMatched, searchFor)
		return m, err
	}
	m.N, m.More, err = r.Admin.CountJobsToSteer(ctx, s.JobFilter)
	return m, err
}
