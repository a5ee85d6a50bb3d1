package op

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// The limits of jobs are by tags.
var jobLimits = Topic{"job limits", "job limit", "mail"}

var ListJobLimits = listAll(About{
	Topic: jobLimits, SQL: "list_job_limits", Command: "jobs limits",
	Does: "List tags that are paused or have limits",
	More: "Each has its limits, and how many of its jobs run, have started in the last period, and are held back. A limit of " +
		"-1 allows none. A pattern such as tenant:* has the sums of its tags that have no closer limit.",
	Example: "posthorn jobs limits --json",
}, (*admin.Admin).JobLimits)

// ListJobTagsInput names some tags.
type ListJobTagsInput struct {
	Namespace
	Tags []string `query:"tags" flag:"tag" page:"tag" maxItems:"100" doc:"Only these tags. Default: those with the most due jobs"`
}

// mostTags is how many tags are listed.
const mostTags = 50

var ListJobTags = Op[ListJobTagsInput, []admin.JobTag]{
	About: About{
		Topic: Topic{"job tags", "job tag", "mail"}, Verb: "list", Scope: Read, SQL: "job_tags_now", Command: "jobs tags", Page: "job-limits",
		Does: "List tags of jobs, with those that wait and run now",
		More: "Up to fifty, first those with the most due jobs. Each says since when its first job waits, which part of the running jobs " +
			"it has, its limit, and why its jobs wait; the verdict is starved, not starved, paused, held back or no worker.",
		Example: "posthorn jobs tags\nposthorn jobs tags --tag tenant:7",
		ByHand:  map[Face]string{Page: "it is beside the limits, and above a list of jobs with one tag"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListJobTagsInput) ([]admin.JobTag, error) {
		return a.JobTags(ctx, in.Tags, mostTags)
	},
}

// ByTag is part of the inputs of operations on a tag of jobs.
type ByTag struct {
	Namespace
	Tag string `path:"tag" doc:"The tag of jobs, or a pattern such as tenant:*, which means each tag that begins so"`
}

// SetJobLimitInput is the whole limit of a tag.
type SetJobLimitInput struct {
	ByTag
	Body struct {
		MaxRunning    *int64 `json:"max_running,omitempty" flag:"max-running" minimum:"-1" maximum:"1000000000" doc:"How many jobs with the tag run at once. Default: any number; 0 or -1: none"`
		MaxStarted    *int64 `json:"max_started,omitempty" flag:"max-started" minimum:"-1" maximum:"1000000000" doc:"How many start in the period. Default: any number; 0 or -1: none"`
		PeriodSeconds int64  `json:"period_seconds,omitempty" page:"seconds" minimum:"1" maximum:"31104000" doc:"The period, with max_started"`
	}
}

// limit is the limit as package admin has it.
func (in *SetJobLimitInput) limit() admin.JobLimit {
	b := in.Body
	return admin.JobLimit{MaxRunning: most(b.MaxRunning), MaxStarted: most(b.MaxStarted), Period: time.Duration(b.PeriodSeconds) * time.Second}
}

// most is a number of jobs as package admin has it, where 0 allows any number.
func most(given *int64) int {
	if given == nil {
		return 0
	}
	return cmp.Or(int(*given), -1)
}

// given is the opposite of most.
func given(limit int) *int64 {
	if limit == 0 {
		return nil
	}
	n := int64(limit)
	return &n
}

var SetJobLimit = Op[SetJobLimitInput, None]{
	About: About{
		Topic: jobLimits, Verb: "set", Method: "PUT", Command: "jobs limit TAG", Page: "tag/limit",
		Does: "Set how many jobs with a tag may run",
		More: "At once, and how many may start in a period, over all workers. The input is the whole limit: without a number " +
			"there is no limit. Jobs that are held back keep their place. A limit of a pattern such as tenant:* holds for each tag that " +
			"begins so, by itself; the limit of the tag itself counts instead, or else that of the longest pattern.",
		Example: "posthorn jobs limit mail --max-running 5\nposthorn jobs limit mail --max-started 100 --per 1m\n" +
			"posthorn jobs limit 'tenant:*' --max-running 4\nposthorn jobs limit mail",
		ByHand: map[Face]string{Command: "--per is a duration, and 0 of a flag that is given allows none"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *SetJobLimitInput) (None, error) {
		return None{}, a.SetJobLimit(ctx, in.Tag, in.limit())
	},
	Load: func(ctx context.Context, a *admin.Admin, in *SetJobLimitInput) error {
		all, err := a.JobLimits(ctx)
		for _, l := range all {
			if l.Tag == in.Tag && l.PeriodSeconds != float64(int64(l.PeriodSeconds)) {
				return pg.Invalid(fmt.Sprintf("the period of tag %s is no whole number of seconds", in.Tag), "Change its limit with posthorn jobs limit.")
			} else if l.Tag == in.Tag {
				in.Body.MaxRunning, in.Body.MaxStarted, in.Body.PeriodSeconds = given(l.MaxRunning), given(l.MaxStarted), int64(l.PeriodSeconds)
			}
		}
		return err
	},
	Done: func(in *SetJobLimitInput, _ None) string { return fmt.Sprintf("tag %s: %s", in.Tag, in.limit()) },
}

var PauseJobTag = Op[ByTag, None]{
	About: About{
		Topic: jobLimits, Verb: "pause", Name: "pause-job-tag", Go: "PauseJobTag", SQL: "pause_job_tag", Command: "jobs pause TAG", Page: "tag/pause",
		Does: "Hand out no jobs with a tag until it is resumed",
		More: "Jobs that workers have continue. A second call changes nothing. A pause of a pattern holds for each tag that begins so, " +
			"also for tags with limits of their own.",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByTag) (None, error) {
		return None{}, a.PauseJobTag(ctx, in.Tag)
	},
	Done: func(in *ByTag, _ None) string { return "tag " + in.Tag + " is paused" },
}

// Resumed tells whether a thing that was resumed had been paused.
type Resumed struct {
	WasPaused bool `json:"was_paused" doc:"false: nothing has changed"`
}

var ResumeJobTag = Op[ByTag, Resumed]{
	About: About{
		Topic: jobLimits, Verb: "resume", Name: "resume-job-tag", Go: "ResumeJobTag", SQL: "resume_job_tag", Command: "jobs resume TAG", Page: "tag/resume",
		Does: "Hand out jobs with a paused tag again",
		More: "The result tells whether the tag was paused. A pattern is resumed as it was paused: a pause of one of its tags stays.",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByTag) (Resumed, error) {
		was, err := a.ResumeJobTag(ctx, in.Tag)
		return Resumed{was}, err
	},
	Done: func(in *ByTag, out Resumed) string {
		if !out.WasPaused {
			return "tag " + in.Tag + " was not paused"
		}
		return "tag " + in.Tag + " is resumed"
	},
}
