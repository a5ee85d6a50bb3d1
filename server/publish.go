package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
	pages "github.com/posthorn/posthorn/server/page"
)

type publishInput struct {
	in.Namespace
	ContentType    string `header:"Content-Type" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"A request that repeats a key within a day publishes nothing, and the response has the ids of the first one"`
	RawBody        []byte

	header http.Header
}

// Resolve keeps the headers, which have the attributes of a CloudEvent in binary mode.
func (i *publishInput) Resolve(hc huma.Context) []error {
	i.header = http.Header{}
	hc.EachHeader(func(name, value string) { i.header.Add(name, value) })
	return nil
}

type publishOutput struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true if all events were published before"`
	Body     struct {
		IDs []int64 `json:"ids" doc:"The ids of the events, in the order of the messages"`
	}
}

func (s *Server) publishing() {
	one, many := schemaOf[admin.Message](s), schemaOf[messages](s)
	cloud, most := schemaOf[cloudEvent](s), maxMessages
	// The schema has a name because generated clients cannot send one without.
	s.api.OpenAPI().Components.Schemas.Map()["Publication"] = &huma.Schema{
		OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MaxItems: &most}, many},
	}
	register(s, operation{
		method: http.MethodPost, path: "/v1/events", id: "publish-events", tag: "events",
		summary: "Publish one event or many",
		description: "A JSON object is one event, an array or {\"events\": [...]} are many. All of them are published, or none. " +
			"CloudEvents 1.0 are accepted in binary mode (ce- headers), structured mode and batched mode.",
		scope: scopePublish, status: http.StatusCreated, anyBytes: true,
		body: &huma.RequestBody{Content: map[string]*huma.MediaType{
			"application/json":                   {Schema: &huma.Schema{Ref: "#/components/schemas/Publication"}},
			"application/cloudevents+json":       {Schema: cloud},
			"application/cloudevents-batch+json": {Schema: &huma.Schema{Type: huma.TypeArray, Items: cloud, MaxItems: &most}},
		}},
	}, s.publishEvents)
}

func (s *Server) publishEvents(ctx context.Context, c caller, input *publishInput) (*publishOutput, error) {
	all, err := decodePublication(input.header, input.RawBody)
	if err != nil {
		return nil, err
	}
	for _, stream := range streamsOf(all) {
		if err := s.admin(c).CheckPublish(stream); err != nil {
			return nil, err
		}
	}
	var output publishOutput
	output.Body.IDs = []int64{}
	if len(all) == 0 { // a batch of CloudEvents may be empty
		return &output, nil
	}
	setDedupKeys(all, input.IdempotencyKey)
	ids, replayed, err := s.sealAndPublish(ctx, c.namespace, all)
	if err != nil {
		return nil, err
	}
	output.Body.IDs = ids
	if replayed {
		output.Replayed = "true"
	}
	return &output, nil
}

// streamsOf returns the streams of messages, each once.
func streamsOf(all []posthorn.Message) []string {
	streams := map[string]bool{}
	for i := range all {
		streams[cmp.Or(all[i].Stream, "default")] = true
	}
	return slices.Sorted(maps.Keys(streams))
}

// setDedupKeys gives each message of a request with an Idempotency-Key a dedup key,
// unless it has its own.
func setDedupKeys(all []posthorn.Message, key string) {
	if key == "" {
		return
	}
	for i := range all {
		if all[i].DedupKey == "" {
			all[i].DedupKey = "idempotency:" + key
			if len(all) > 1 {
				all[i].DedupKey += ":" + strconv.Itoa(i)
			}
		}
	}
}

// publishOrReplay publishes messages. replayed tells whether all of them had been
// published before, under the same dedup keys.
func (s *Server) publishOrReplay(ctx context.Context, namespace string, all []posthorn.Message) (ids []int64, replayed bool, err error) {
	var keys []string
	for i := range all {
		if all[i].DedupKey != "" {
			keys = append(keys, all[i].DedupKey)
		}
	}
	if pages.IsFrom(ctx) { // a person has published it
		err = pgx.BeginFunc(ctx, s.client.Pool(), func(tx pgx.Tx) error {
			if ids, err = s.publish(ctx, tx, namespace, all); err != nil {
				return err
			}
			return s.admin(callerOf(ctx)).In(tx).Record(ctx, "publish-events", all[0].Type, int64(len(all)), streamsOf(all))
		})
		return ids, false, err
	}
	if len(keys) < len(all) { // a message without a key is always new
		ids, err = s.publish(ctx, s.client.Pool(), namespace, all)
		return ids, false, err
	}
	err = pgx.BeginFunc(ctx, s.client.Pool(), func(tx pgx.Tx) error {
		if ids, err = s.publish(ctx, tx, namespace, all); err != nil {
			return err
		}
		first, err := pg.FirstUsed(ctx, tx, namespace, keys)
		replayed = first == 0
		return err
	})
	return ids, replayed, err
}

// publish publishes messages in any namespace, as the client's Publish does in its own.
func (s *Server) publish(ctx context.Context, db posthorn.DB, namespace string, all []posthorn.Message) ([]int64, error) {
	if namespace == s.client.Namespace() {
		return s.client.Publish(ctx, db, all...)
	}
	origin := propagation.MapCarrier{}
	traceContext.Inject(ctx, origin)
	converted := make([]pg.Message, len(all))
	for i := range all {
		m := &all[i]
		metadata := map[string]any{"producer": s.client.NodeID()}
		if m.Metadata["traceparent"] == nil {
			for key, value := range origin {
				metadata[key] = value
			}
		}
		maps.Copy(metadata, m.Metadata)
		raw, err := json.Marshal(metadata)
		if err != nil {
			return nil, err
		}
		payload, _ := m.Payload.(json.RawMessage) // the decoders of bodies return no other type
		converted[i] = pg.Message{
			Type: m.Type, Stream: m.Stream, Key: m.Key, Tags: m.Tags, Payload: payload, Metadata: raw, DedupKey: m.DedupKey,
		}
		if !m.DeliverAt.IsZero() {
			converted[i].DeliverAt = &m.DeliverAt
		}
	}
	ids, err := pg.PublishMany(ctx, db, namespace, converted)
	s.groupQueues.WakeAll()
	return ids, err
}
