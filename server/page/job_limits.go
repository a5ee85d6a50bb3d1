package page

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) jobLimits() {
	p.screen(Screen{Path: "job-limits", Under: "jobs", Live: true, Show: listJobLimits})
	p.action(Action{Path: "tag/pause", Do: func(ctx context.Context, r *Request) (string, string, error) {
		tag := r.Value("tag")
		return "", "Jobs tagged " + tag + " are not handed out.", r.Admin.PauseJobTag(ctx, tag)
	}})
	p.action(Action{Path: "tag/resume", Do: func(ctx context.Context, r *Request) (string, string, error) {
		tag := r.Value("tag")
		_, err := r.Admin.ResumeJobTag(ctx, tag)
		return "", "Jobs tagged " + tag + " are handed out again.", err
	}})
	p.action(Action{Path: "tag/limit", Do: limitTag})
}

func listJobLimits(ctx context.Context, r *Request) (*View, error) {
	limits, err := r.Admin.JobLimits(ctx)
	return &View{Title: "Tags of jobs", Template: "job_limits.html", Data: limits}, err
}

// limitTag sets the limit of a tag; empty fields remove it.
func limitTag(ctx context.Context, r *Request) (string, string, error) {
	var numbers [3]int
	for i, name := range []string{"max_running", "max_started", "seconds"} {
		text := strings.TrimSpace(r.Value(name))
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1_000_000_000 {
			return "", "", invalid(name+" is not a number from 1 on: "+text, "Leave it out for no limit; pause the tag to hand out none.")
		}
		numbers[i] = n
	}
	tag := r.Value("tag")
	limit := admin.JobLimit{MaxRunning: numbers[0], MaxStarted: numbers[1], Period: time.Duration(numbers[2]) * time.Second}
	return "", "The limit of tag " + tag + " is set.", r.Admin.SetJobLimit(ctx, tag, limit)
}
