package posthorn

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// Schedule publishes an event at the times of a calendar. Name, Type and one of Cron,
// Every and At are required.
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
