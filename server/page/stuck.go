package page

import (
	"context"
	"slices"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) stuck() {
	p.screen(Screen{Path: "stuck", Under: "jobs", Live: true, Show: showStuck})
}

// mostStuck bounds the reasons for which jobs are stuck that are shown.
const mostStuck = 100

// orMore tells whether the others that are stuck as a job is may be more than were counted: the first hundred jobs of a tag are
// counted, and the first twenty of it that were lost.
func orMore(j admin.StuckJob) bool { return j.Others >= 99 || j.Trouble == "lost" && j.Others >= 19 }

// stuckPage has the jobs that are stuck: the first of each reason, or those for which one of them stands.
type stuckPage struct {
	With     int64 // the job that stands for those of Alike; 0: there is none
	Behind   bool  // they wait behind it; otherwise it is one of them
	Alike    []admin.JobStatus
	Trouble  string // empty for all
	Troubles []string
	InAll    string
	Jobs     []stuckJob
	More     bool // jobs that have been stuck for a shorter time
}

// stuckJob is a job, and the page that lists those for which it stands.
type stuckJob struct {
	admin.StuckJob
	And, Link string // of the others: "+6 more"
}

func showStuck(ctx context.Context, r *Request) (*View, error) {
	trouble := r.Value("trouble")
	with, err := r.optionalNumber("id")
	if err != nil {
		return nil, err
	}
	if with > 0 {
		alike, err := r.Admin.StuckWith(ctx, trouble, with, mostStuck+1)
		isOne := slices.ContainsFunc(alike, func(j admin.JobStatus) bool { return j.ID == with })
		page := stuckPage{With: with, Behind: trouble == "blocks others" && !isOne, Trouble: trouble, Alike: alike[:min(len(alike), mostStuck)], More: len(alike) > mostStuck}
		return &View{Title: "Stuck jobs", Data: page}, err
	}
	jobs, err := r.Admin.StuckJobs(ctx, trouble, mostStuck+1)
	page := stuckPage{Trouble: trouble, Troubles: choicesOf(&op.ListStuckJobsInput{}, "trouble"), InAll: stuckInAll(jobs), More: len(jobs) > mostStuck}
	for _, j := range jobs[:min(len(jobs), mostStuck)] {
		page.Jobs = append(page.Jobs, stuckJob{j, otherStuck(j), linkOfOthers(r, j)})
	}
	return &View{Title: "Stuck jobs", Data: page}, err
}

// stuckInAll says how many jobs are stuck: "120 jobs are stuck"; nothing if none is. A job that is the first for two reasons, such as
// two tags of it, counts once, with the larger number of others.
func stuckInAll(jobs []admin.StuckJob) string {
	counts, n, more := map[int64]int64{}, int64(0), len(jobs) > mostStuck
	for _, j := range jobs[:min(len(jobs), mostStuck)] {
		n += max(1+j.Others-counts[j.ID], 0)
		counts[j.ID] = max(1+j.Others, counts[j.ID])
		more = more || orMore(j)
	}
	switch {
	case n == 0:
		return ""
	case more:
		return "at least " + things(n, "job") + " are stuck"
	case n == 1:
		return "1 job is stuck"
	}
	return things(n, "job") + " are stuck"
}

// otherStuck says how many others are stuck as a job is.
func otherStuck(j admin.StuckJob) string {
	if j.Others == 0 {
		return ""
	}
	n := "+" + count(j.Others)
	switch {
	case orMore(j):
		return n + " or more"
	case j.State == "failed" || j.State == "cancelled":
		return n + " behind"
	}
	return n + " more"
}

// linkOfOthers is the page that lists the jobs for which a job stands.
func linkOfOthers(r *Request, j admin.StuckJob) string {
	switch {
	case j.Trouble == "stalled" || j.Trouble == "slow":
		return r.Link("busy", "trouble", j.Trouble, "worker", j.Worker)
	case j.Tag != "":
		return r.Link("jobs", "state", j.State, "tag", j.Tag)
	}
	return r.Link("stuck", "trouble", j.Trouble, "id", j.ID)
}
