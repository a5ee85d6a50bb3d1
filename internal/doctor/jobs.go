package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// A job that could have been taken for that long has no worker.
const (
	untaken      = 5 * time.Minute
	untakenShown = 10
)

func jobs(ctx context.Context, db pg.DB) ([]Finding, error) {
	left, err := pg.UntakenJobs(ctx, db, untaken)
	if err != nil {
		return nil, err
	}
	stalled, err := pg.StalledJobs(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, t := range left[:min(len(left), untakenShown)] {
		which := "without tags"
		if t.Tag != "" {
			which = "tagged " + t.Tag
		}
		findings = append(findings, warn(
			fmt.Sprintf("%d jobs %s in namespace %s wait for a worker, the oldest for %s", t.Jobs, which, t.Namespace, rough(t.For)),
			"start workers for them, or more"))
	}
	if more := len(left) - untakenShown; more > 0 {
		findings = append(findings, warn(fmt.Sprintf("%d more tags like them", more), ""))
	}
	for _, t := range stalled {
		findings = append(findings, warn(
			fmt.Sprintf("%d jobs in namespace %s are stalled: their workers have been silent for up to %s", t.Jobs, t.Namespace, rough(t.For)),
			fmt.Sprintf("look: posthorn --namespace %s jobs list --stalled; they go to others when their leases pass", t.Namespace)))
	}
	due, oldest, err := pg.DueJobs(ctx, db)
	if err != nil {
		return nil, err
	}
	well := "none waits for a worker"
	if due > 0 {
		well = fmt.Sprintf("%d wait for a worker, the oldest for %s", due, rough(oldest))
	}
	return orOK(findings, well), nil
}
