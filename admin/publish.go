package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Message is an event to publish. Its tags are those of package op.
type Message struct {
	Type      string                     `json:"type" doc:"The type of the event" example:"order.placed"`
	Payload   json.RawMessage            `json:"payload,omitempty" doc:"Any JSON. Default: {}"`
	Stream    string                     `json:"stream,omitempty" doc:"The stream of the event. Default: default" example:"orders"`
	Key       string                     `json:"key,omitempty" doc:"The subject of the event, such as an order. Groups ordered by key hand out the events of a key in order" example:"order-7"`
	Tags      []string                   `json:"tags,omitempty" maxItems:"100" doc:"Labels by which the event can be found"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty" doc:"Further fields of the event; over HTTP, producer and trace context are added"`
	DeliverAt time.Time                  `json:"deliver_at,omitzero" doc:"The time at which the event enters the log. Default: now"`
	DedupKey  string                     `json:"dedup_key,omitempty" doc:"Messages with the same key within a day are published once"`
}

// PublishEvent publishes one event for a person or an assistant, whose actions are recorded, and returns its id. The
// payload is not sealed, so the database refuses an event of a confidential stream. Programs publish with their client.
func (a *Admin) PublishEvent(ctx context.Context, m Message) (id int64, err error) {
	stream := cmp.Or(m.Stream, "default")
	if err := a.CheckPublish(stream); err != nil {
		return 0, err
	}
	message := pg.Message{Type: m.Type, Payload: m.Payload, Stream: stream, Key: m.Key, Tags: m.Tags, DeliverAt: pg.Optional(m.DeliverAt), DedupKey: m.DedupKey}
	if m.Metadata != nil {
		if message.Metadata, err = json.Marshal(m.Metadata); err != nil {
			return 0, pg.Translate("publish event", err)
		}
	}
	_, err = a.recorded(ctx, aStream(stream), entry{"publish-events", m.Type, nil}, func(db DB) (int64, error) {
		id, err = pg.Publish(ctx, db, a.namespace, message)
		return 1, err
	})
	return id, err
}

// NewJob is a job to enqueue. Its tags are those of package op. Periods are texts that Postgres reads.
type NewJob struct {
	Title       string                     `json:"title" doc:"The task in a few words" example:"Send Email Notification"`
	Payload     json.RawMessage            `json:"payload,omitempty" doc:"Any JSON, up to 1 MiB. Default: {}"`
	Tags        []string                   `json:"tags,omitempty" maxItems:"100" doc:"Workers claim jobs by their tags"`
	Description string                     `json:"description,omitempty" doc:"More about the job, for people"`
	Priority    int                        `json:"priority,omitempty" minimum:"-999999999" maximum:"999999999" doc:"Jobs of higher priority are claimed first. Default: 0"`
	RunAt       time.Time                  `json:"run_at,omitzero" doc:"The time before which the job is not claimed. Default: now"`
	MaxRetries  *int64                     `json:"max_retries,omitempty" minimum:"0" maximum:"1000000" doc:"How many attempts may fail. Default: 3"`
	RetryDelays []string                   `json:"retry_delays,omitempty" maxItems:"1000" doc:"The delay after each failed attempt; the last one applies to all further attempts. Default: 5 minutes"`
	UniqueKey   string                     `json:"unique_key,omitempty" doc:"While a job with this key is pending, enqueueing another one returns the pending job"`
	UniqueFor   string                     `json:"unique_for,omitempty" doc:"Keeps unique_key in use for this time, even when the job is finished"`
	FairKey     string                     `json:"fair_key,omitempty" doc:"Under each tag, jobs of the same priority take turns by this key, such as the name of a tenant"`
	Weight      *float64                   `json:"weight,omitempty" doc:"The share of fair_key: 2 is twice as many turns as 1. From 0.001 to 1000. Default: 1"`
	Metadata    map[string]json.RawMessage `json:"metadata,omitempty" doc:"A JSON object that is stored beside the payload"`
	After       []int64                    `json:"after,omitempty" maxItems:"10000" doc:"The ids of jobs that must be COMPLETED before this one is claimed"`
}

// EnqueueJob enqueues one job for a person or an assistant, whose actions are recorded. It returns the id of the job, or
// of the job that has the unique key. Programs enqueue with their client.
func (a *Admin) EnqueueJob(ctx context.Context, j NewJob) (id int64, err error) {
	document, err := json.Marshal(j)
	if err != nil {
		return 0, pg.Translate("enqueue job", err)
	}
	_, err = a.recorded(ctx, noStream, entry{"enqueue-job", j.Title, nil}, func(db DB) (int64, error) {
		id, err = pg.Value[int64](ctx, db, "enqueue job", "select posthorn.enqueue_many($1::text, jsonb_build_array($2::jsonb))",
			a.namespace, string(document))
		return 1, err
	})
	return id, err
}
