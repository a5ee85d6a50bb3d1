package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
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
	return c.Admin().In(db).Unschedule(ctx, name)
}
