package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Schedule publishes an event at its times. Name, Type and one of Cron, Every and
// At are required.
type Schedule struct {
	// Name is unique in the namespace.
	Name string

	// Cron is when: five fields, minute hour day month weekday, such as
	// "30 8 * * mon-fri"; or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string
	// Every is when, in equal steps of whole seconds.
	Every time.Duration
	// At is when, once, to the second.
	At time.Time

	// TimeZone is the one that Cron's fields are read in, such as Europe/Berlin.
	// What happens where its clocks change is in docs/schedule.md. Default: UTC.
	TimeZone string
	// CatchUp is what happens to times at which nobody was there to publish.
	// Default: CatchUpOnce.
	CatchUp CatchUp

	// Type, Payload, Stream, Key and Metadata are the event's, as in [Message].
	Type     string
	Payload  any
	Stream   string
	Key      string
	Metadata map[string]any
}

// CatchUp is what happens to the times of a schedule that were missed.
type CatchUp string

// The ways to catch up.
const (
	CatchUpOnce CatchUp = "once" // one event for all of them
	CatchUpAll  CatchUp = "all"  // one event for each
	CatchUpSkip CatchUp = "skip" // none for what is more than two minutes past
)

// Schedule makes a schedule, or changes the one of that name, and returns its
// id. It is meant to be said at each start of a program: the same again changes
// nothing, not even the next time, and what was paused stays paused.
//
// One event is published per due time, however many nodes run; [Client.Run] sees
// to that, or any other caller of upkeep. Its metadata has producer = scheduler,
// scheduledTaskId, and the due time as scheduledFor.
func (c *Client) Schedule(ctx context.Context, db DB, s Schedule) (id string, err error) {
	encoded, err := c.encodeSchedule(s)
	if err != nil {
		return "", fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	return pg.DefineSchedule(ctx, db, c.namespace, encoded)
}

func (c *Client) encodeSchedule(s Schedule) (pg.Schedule, error) {
	encoded := pg.Schedule{
		Name: s.Name, Type: s.Type, TimeZone: s.TimeZone, CatchUp: string(s.CatchUp), Stream: s.Stream, Key: s.Key,
	}
	var err error
	if encoded.Cron, err = s.expression(); err != nil {
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

// expression is the one of the three ways to say when.
func (s Schedule) expression() (string, error) {
	var ways []string
	if s.Cron != "" {
		ways = append(ways, s.Cron)
	}
	if s.Every != 0 {
		ways = append(ways, "@every "+s.Every.String())
	}
	if !s.At.IsZero() {
		ways = append(ways, "@at "+s.At.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if len(ways) != 1 {
		return "", invalid(fmt.Sprintf("%d of Cron, Every and At are given", len(ways)), "Give one of them.")
	}
	return ways[0], nil
}

// Unschedule deletes a schedule, and reports whether there was one.
func (c *Client) Unschedule(ctx context.Context, db DB, name string) (bool, error) {
	return pg.Unschedule(ctx, db, c.namespace, name)
}

// RunScheduleNow publishes the event of a schedule once more, also while it is
// paused, and returns its id. The times of the schedule stay as they are.
func (c *Client) RunScheduleNow(ctx context.Context, db DB, name string) (int64, error) {
	id, err := pg.RunScheduleNow(ctx, db, c.namespace, name)
	if err == nil {
		c.watch.Published()
	}
	return id, err
}

// PauseSchedule lets a schedule publish nothing, until [Client.ResumeSchedule].
func (c *Client) PauseSchedule(ctx context.Context, name string) error {
	return pg.PauseSchedule(ctx, c.control, c.namespace, name)
}

// ResumeSchedule lets a paused schedule go on with its next time. What it missed
// is not made up for.
func (c *Client) ResumeSchedule(ctx context.Context, name string) error {
	return pg.ResumeSchedule(ctx, c.control, c.namespace, name)
}

// ScheduleState is how a schedule stands.
type ScheduleState string

// The states of a schedule.
const (
	ScheduleActive    ScheduleState = "active"
	ScheduleFailing   ScheduleState = "failing" // it could not publish, and tries again
	SchedulePaused    ScheduleState = "paused"
	ScheduleCompleted ScheduleState = "completed" // its one time has passed
)

// ScheduleStatus is a schedule as it stands.
type ScheduleStatus struct {
	ID        string
	Name      string
	State     ScheduleState
	Cron      string // also for Every and At, as @every and @at
	TimeZone  string
	CatchUp   CatchUp
	NextRunAt time.Time // zero: never
	LastRunAt time.Time // zero: not yet
	Type      string
	Payload   json.RawMessage
	Stream    string
	Key       string
	Metadata  json.RawMessage
	Failures  int    // in a row
	LastError string // of the last of them
}

// Schedules lists the schedules of the namespace, by name.
func (c *Client) Schedules(ctx context.Context) ([]ScheduleStatus, error) {
	found, err := pg.ListSchedules(ctx, c.control, c.namespace)
	if err != nil {
		return nil, err
	}
	schedules := make([]ScheduleStatus, len(found))
	for i, s := range found {
		schedules[i] = ScheduleStatus{
			ID: s.TaskID, Name: s.Name, State: ScheduleState(s.State), Cron: s.Cron, TimeZone: s.TimeZone, CatchUp: CatchUp(s.CatchUp),
			NextRunAt: orZero(s.NextRunAt), LastRunAt: orZero(s.LastRunAt), Type: s.Type, Payload: s.Payload, Stream: s.Stream, Key: s.Key,
			Metadata: s.Metadata, Failures: s.Failures, LastError: s.LastError,
		}
	}
	return schedules, nil
}
