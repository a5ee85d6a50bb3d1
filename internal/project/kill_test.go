package project_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/posthorntest"
)

// Seed 002.30: a process that is killed with -9 after it has written, and before
// it commits, leaves no effect; another goes on.
func TestProjectionSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	want := p.publish(250)
	for range await.Kills(10) {
		p.killInside("keep")
		want = append(want, p.publish(50)...)
	}
	keep(p.Client, "applied")
	p.Start()
	p.wantApplied("applied", want)
}

// A process that is killed in the middle of replacing leaves a replacement that
// another call goes on with.
func TestReplaceSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	want := p.publish(250)
	keep(p.Client, "applied")
	p.Start()
	p.wantApplied("applied", want)
	for range 2 {
		p.killInside("replace")
	}
	if s := p.status("totals (replacement)"); !s.Rebuilding || s.Replaces != "totals" || s.RebuildDone == 0 || s.RebuildDone >= s.RebuildTotal {
		t.Errorf("the replacement is at %+v", s)
	}
	want = append(want, p.publish(50)...)
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", replaceConfig(), into("applied_new")); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
}

const childURL, childTask = "POSTHORN_TEST_CHILD_URL", "POSTHORN_TEST_CHILD_TASK"

// killInside runs a process that applies events, and kills it when it has written
// its third batch and not committed it.
func (p *projected) killInside(task string) {
	p.T.Helper()
	c := testchild.Start(p.T, "TestProjectionProcess", childURL+"="+p.URL, childTask+"="+task)
	c.Prints("written")
	c.Kill()
	posthorntest.Advance(p.T, p.Client, quick.LeaseFor)
}

// TestProjectionProcess runs in the processes that other tests kill.
func TestProjectionProcess(t *testing.T) {
	url := os.Getenv(childURL)
	if url == "" {
		t.Skip("run by others")
	}
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	batches := 0
	stuck := func(table string) posthorn.ApplyFunc {
		return func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
			if err := into(table)(ctx, tx, events); err != nil {
				return err
			}
			if batches++; batches == 3 {
				fmt.Println("\nwritten")
				select {}
			}
			return nil
		}
	}
	config := quick
	config.BatchSize = 20
	if os.Getenv(childTask) == "keep" {
		ph.Project("totals", "order.>", config, stuck("applied"))
		t.Fatal(ph.Run(t.Context()))
	}
	replace := replaceConfig()
	replace.ProjectionConfig = config
	t.Fatal(ph.ReplaceProjection(t.Context(), "totals", "order.>", replace, stuck("applied_new")))
}
