package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// jobDetails is a job as posthorn jobs show prints it.
type jobDetails struct {
	admin.JobStatus
	Steps []admin.JobStep  `json:"steps,omitempty"`
	Waits []admin.JobWait  `json:"waits,omitempty"`
	Log   []admin.JobEntry `json:"log"`

	Outlook  admin.JobOutlook  `json:"outlook"`
	Timeline admin.JobTimeline `json:"timeline"`
}

var jobsShow = showCommand[jobDetails]{
	about: aboutOf(op.GetJob, "Below are its timeline, with the time that each part took and its share of the whole, its payload, the steps that are saved, the jobs that it waits for or that wait for it, and its log."),
	load: func(ctx context.Context, adm *admin.Admin, name string) (d jobDetails, err error) {
		id, err := jobID(name)
		if err != nil {
			return d, err
		}
		if d.JobStatus, err = adm.Job(ctx, id); err != nil {
			return d, err
		}
		if d.Steps, err = adm.JobSteps(ctx, id); err != nil {
			return d, err
		}
		if d.Waits, err = adm.JobWaits(ctx, id, mostWaits); err != nil {
			return d, err
		}
		if d.Outlook, err = adm.JobOutlook(ctx, id); err != nil {
			return d, err
		}
		if d.Timeline, err = adm.JobTimeline(ctx, id); err != nil {
			return d, err
		}
		d.Log, err = adm.JobLog(ctx, id)
		return d, err
	},
	fields: jobFields,
	below:  printJobDocuments,
}

func jobFields(field fields, d jobDetails) {
	field("id", d.ID)
	field("title", d.Title)
	field("description", d.Description)
	field("tags", strings.Join(d.Tags, ", "))
	field("status", jobStatus(d.JobStatus))
	field("state", d.State)
	field("why", d.Why)
	field("since", d.Outlook.Since)
	field("time", d.Timeline.Spent)
	for _, w := range d.Waits {
		if why := w.Why(); why != "" {
			field("blocked", why)
		}
	}
	field("error", firstLine(d.ErrorMessage))
	field("attempt", d.Attempt)
	field("failures", d.Outlook.Failures)
	if d.Outlook.Permanent {
		field("not retried", "its worker said that a retry cannot help")
	}
	field("max retries", d.MaxRetries)
	if d.Outlook.GoesOn != "" {
		field(d.Outlook.GoesOn, d.NextRetryAt)
	}
	field("priority", d.Priority)
	field("run at", d.RunAt)
	field("unique key", d.UniqueKey)
	field("fair key", d.FairKey)
	if d.FairKey != "" {
		field("weight", d.Weight)
	}
	field("worker", d.Worker)
	field("lease until", d.LeaseUntil)
	field("created", d.CreatedAt)
	field("updated", d.UpdatedAt)
	field("finished", d.FinishedAt)
}

func printJobDocuments(w io.Writer, d jobDetails) error {
	if err := printTimeline(w, d.Timeline); err != nil {
		return err
	}
	var parts strings.Builder
	for _, part := range []struct {
		name     string
		document json.RawMessage
	}{{"payload", d.Payload}, {"metadata", d.Metadata}, {"progress", d.Progress}, {"result", d.Result}} {
		if len(part.document) > 0 {
			parts.WriteString("\n" + part.name + "\n" + indented(part.document) + "\n")
		}
	}
	if _, err := io.WriteString(w, parts.String()+"\n"); err != nil {
		return err
	}
	if len(d.Steps) > 0 {
		if err := jobStepColumns.print(w, d.Steps); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	if len(d.Waits) > 0 {
		if err := jobWaitColumns.print(w, d.Waits); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	return jobLogColumns.print(w, d.Log)
}

// printTimeline prints how the time of a job was spent, and a line for each part.
func printTimeline(w io.Writer, t admin.JobTimeline) error {
	earlier := ""
	if t.More {
		earlier = "; earlier attempts are left out"
	}
	if _, err := fmt.Fprintf(w, "\ntimeline: %s%s\n", t.Spent, earlier); err != nil {
		return err
	}
	return timelineColumns.print(w, t.Parts)
}

var timelineColumns = columns[admin.JobPart]{"start|took|share|part", func(p admin.JobPart) []any {
	took, share := p.Took(), fmt.Sprintf("%.0f%%", 100*p.Share)
	text := p.Text()
	switch {
	case p.Kind == admin.PartMoment:
		took, share = "", ""
	case p.Kind == admin.PartStep:
		text = "  " + text // of the attempt above
	case p.Open && p.To.After(p.From.Add(time.Duration(p.Seconds*float64(time.Second))+time.Second)):
		text += ", until " + p.To.UTC().Format(time.RFC3339)
	case p.Open:
		text += ", goes on"
	}
	return []any{p.From, took, share, text}
}}

// mostWaits bounds the jobs that are shown on each side of a job.
const mostWaits = 100

var jobWaitColumns = columns[admin.JobWait]{"order|job|status|title", func(w admin.JobWait) []any {
	return []any{w.Side, w.ID, strings.ToLower(w.Status), w.Title}
}}

var jobStepColumns = columns[admin.JobStep]{"saved|step|attempt|result", func(s admin.JobStep) []any {
	until := s.WakesAt.UTC().Format(time.RFC3339)
	switch event := s.Awaited(); {
	case s.Waits():
		return []any{s.SavedAt, s.Name, s.Attempt, "waits for " + event + " until " + until}
	case s.AwaitedEvent() != 0:
		return []any{s.SavedAt, s.Name, s.Attempt, fmt.Sprintf("event %d, %s", s.AwaitedEvent(), event)}
	case s.EventType != "":
		return []any{s.SavedAt, s.Name, s.Attempt, event + " has not come by " + until}
	case !s.WakesAt.IsZero():
		return []any{s.SavedAt, s.Name, s.Attempt, "a sleep until " + until}
	}
	return []any{s.SavedAt, s.Name, s.Attempt, string(s.Result)} // of long ones, only --json has all
}}

var jobLogColumns = columns[admin.JobEntry]{"at|action|attempt|worker|took|what", func(e admin.JobEntry) []any {
	took := ""
	if e.TookMS > 0 {
		took = e.Took().Round(time.Millisecond).String()
	}
	return []any{e.CreatedAt, e.Action, e.Attempt, e.Worker, took, firstLine(e.ErrorMessage + e.Reason)}
}}
