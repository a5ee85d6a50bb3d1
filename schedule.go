package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// Schedule publishes an event, or enqueues a job, at the times of a calendar. Name, one
// of Type and Job, and one of Cron, Every and At are required.
type Schedule struct {
	// Name is unique in the namespace.
	Name string

	// Cron has five fields, minute hour day month weekday, such as "30 8 * * mon-fri",
	// or is one of @hourly, @daily, @weekly, @monthly and @yearly.
	Cron string
	// Every is an interval of whole seconds.
	Every time.Duration
	// At is a single time, to the second.
	At time.Time

	// TimeZone is the time zone of Cron, such as Europe/Berlin. docs/schedule.md
	// describes changes of the clock. Default: UTC.
	TimeZone string
	// CatchUp applies to times at which no node was running. Default: CatchUpOnce.
	CatchUp CatchUp

	// Type, Payload, Stream, Key and Metadata are those of the event, as in [Message].
	Type     string
	Payload  any
	Stream   string
	Key      string
	Metadata map[string]any

	// Job is enqueued instead of an event. It has no RunAt.
	Job *NewJob
}

// CatchUp says how a schedule treats the times that it has missed.
type CatchUp string

// The values of [Schedule].CatchUp.
const (
	CatchUpOnce CatchUp = "once" // one event for all missed times
	CatchUpAll  CatchUp = "all"  // one event for each missed time
	CatchUpSkip CatchUp = "skip" // no event for times that are more than two minutes past
)

// Schedule creates a schedule, or changes the existing one with its name, and returns
// its id. Programs call it at each start: an unchanged schedule keeps its next time, and
// a paused one stays paused.
//
// Each due time publishes one event, however many nodes run. [Client.Run] publishes it,
// or any other caller of upkeep. The metadata of the event has producer = scheduler,
// scheduledTaskId, and the due time as scheduledFor.
func (c *Client) Schedule(ctx context.Context, db DB, s Schedule) (id string, err error) {
	encoded, err := c.encodeSchedule(s)
	if err != nil {
		return "", fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	return c.Admin().In(db).DefineSchedule(ctx, encoded)
}

func (c *Client) encodeSchedule(s Schedule) (admin.Schedule, error) {
	encoded := admin.Schedule{
		Name: s.Name, Type: s.Type, TimeZone: s.TimeZone, CatchUp: string(s.CatchUp), Stream: s.Stream, Key: s.Key,
	}
	var err error
	if encoded.Cron, err = s.expression(); err != nil {
		return encoded, err
	}
	if s.Job != nil {
		if s.Type != "" || s.Payload != nil || s.Stream != "" || s.Key != "" || len(s.Metadata) > 0 {
			return encoded, invalid("a schedule publishes an event or enqueues a job", "Leave out the fields of the event, or Job.")
		}
		encoded.Job, err = c.encodeScheduledJob(s.Job)
		return encoded, err
	}
	if encoded.Payload, err = c.encodePayload(s.Payload); err != nil {
		return encoded, invalid(fmt.Sprintf("payload: %v", err), "Give a value that encodes as JSON.")
	}
	if len(s.Metadata) > 0 {
		if encoded.Metadata, err = json.Marshal(s.Metadata); err != nil {
			return encoded, invalid(fmt.Sprintf("metadata: %v", err), "Give values that encode as JSON.")
		}
	}
	return encoded, nil
}

// encodeScheduledJob returns a job as the SQL function enqueue_many reads it.
func (c *Client) encodeScheduledJob(j *NewJob) (json.RawMessage, error) {
	payload, err := c.encodePayload(j.Payload)
	if err != nil {
		return nil, invalid(fmt.Sprintf("job: payload: %v", err), "Give a value that encodes as JSON.")
	}
	fields := map[string]any{"title": j.Title, "payload": payload, "tags": append([]string{}, j.Tags...), "priority": j.Priority}
	optional := func(name string, value any, given bool) {
		if given {
			fields[name] = value
		}
	}
	delays := make([]string, len(j.RetryDelays))
	for i, d := range j.RetryDelays {
		delays[i] = pg.Period(d)
	}
	optional("description", j.Description, j.Description != "")
	optional("max_retries", max(j.MaxRetries, 0), j.MaxRetries != 0)
	optional("retry_delays", delays, len(delays) > 0)
	optional("unique_key", j.UniqueKey, j.UniqueKey != "")
	optional("unique_for", pg.Period(j.UniqueFor), j.UniqueFor != 0)
	optional("fair_key", j.FairKey, j.FairKey != "")
	optional("weight", j.Weight, j.Weight != 0)
	optional("metadata", j.Metadata, len(j.Metadata) > 0)
	optional("after", j.After, len(j.After) > 0)
	optional("run_at", j.RunAt, !j.RunAt.IsZero())
	document, err := json.Marshal(fields)
	if err != nil {
		return nil, invalid(fmt.Sprintf("job: %v", err), "Give values that encode as JSON.")
	}
	return document, nil
}

// expression returns Cron, Every or At as the text that SQL reads.
func (s Schedule) expression() (string, error) {
	var given []string
	if s.Cron != "" {
		given = append(given, s.Cron)
	}
	if s.Every != 0 {
		given = append(given, "@every "+s.Every.String())
	}
	if !s.At.IsZero() {
		given = append(given, "@at "+s.At.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if len(given) != 1 {
		return "", invalid(fmt.Sprintf("%d of Cron, Every and At are given", len(given)), "Give one of them.")
	}
	return given[0], nil
}

// Unschedule deletes a schedule, and reports whether there was one.
func (c *Client) Unschedule(ctx context.Context, db DB, name string) (bool, error) {
	return c.Admin().In(db).Unschedule(ctx, name)
}
