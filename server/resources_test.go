package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var schedule admin.ScheduleStatus
	put := `{"cron_expression":"0 7 * * *","event_type":"report.due","timezone":"Europe/Berlin","payload":{"kind":"daily"},"metadata":{"a":1},"stream":"reports","key":"k"}`
	s.call(t, "PUT", "/v1/schedules/reports", put).want(t, 200, &schedule)
	equal(t, "schedule", fmt.Sprint(schedule.Cron, schedule.TimeZone, schedule.State), "0 7 * * *Europe/Berlinactive")
	s.call(t, "POST", "/v1/schedules/reports/pause", nil).want(t, 204)
	s.call(t, "GET", "/v1/schedules/reports", nil).want(t, 200, &schedule)
	equal(t, "state", schedule.State, "paused")
	s.call(t, "POST", "/v1/schedules/reports/resume", nil).want(t, 204)
	var ran struct{ ID int64 }
	s.call(t, "POST", "/v1/schedules/reports/run", nil).want(t, 200, &ran)
	var event eventView
	s.call(t, "GET", fmt.Sprintf("/v1/events/%d", ran.ID), nil).want(t, 200, &event)
	equal(t, "stream of the event", event.Stream, "reports")
	var all list[admin.ScheduleStatus]
	s.call(t, "GET", "/v1/schedules", nil).want(t, 200, &all)
	equal(t, "schedules", len(all.Items), 1)
	s.call(t, "DELETE", "/v1/schedules/reports", nil).want(t, 204)
	s.call(t, "DELETE", "/v1/schedules/reports", nil).wantProblem(t, 404, "reports")
	s.call(t, "GET", "/v1/schedules/reports", nil).wantProblem(t, 404, "reports")
	for _, verb := range []string{"pause", "resume", "run"} {
		s.call(t, "POST", "/v1/schedules/reports/"+verb, nil).wantProblem(t, 404, "reports")
	}
	for _, body := range []string{
		`{"cron_expression":"nonsense","event_type":"a"}`, `{"cron_expression":"@daily"}`,
		`{"cron_expression":"@daily","event_type":"a","timezone":"Nowhere"}`,
		`{"cron_expression":"@daily","event_type":"a","catch_up":"maybe"}`,
		`{"cron_expression":"@daily","event_type":"a","metadata":[]}`,
	} {
		s.call(t, "PUT", "/v1/schedules/reports", body).wantProblem(t, 400, "")
	}
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var put struct{ ID int64 }
	s.call(t, "PUT", "/v1/subscriptions/g/big", `{"filter":{"type":["order.*"],"payload":{"big":true}},"expire_after_seconds":3600}`).want(t, 200, &put)
	if put.ID == 0 {
		t.Error("it has no id")
	}
	posthorntest.Publish(
		t, s.ph,
		posthorn.Message{Type: "order.placed", Payload: map[string]any{"big": false}},
		posthorn.Message{Type: "order.placed", Payload: map[string]any{"big": true}},
	)
	lease := s.claim(t, "g", `{"wait":60}`)
	equal(t, "events", len(lease.Events), 1)
	equal(t, "subscriptions", lease.Events[0].Subscriptions, []string{"big"})
	var all list[admin.SubscriptionStatus]
	s.call(t, "GET", "/v1/subscriptions?group=g", nil).want(t, 200, &all)
	equal(t, "subscription", fmt.Sprint(len(all.Items), all.Items[0].Name, all.Items[0].ExpireAfterSeconds), "1big3600")
	s.call(t, "DELETE", "/v1/subscriptions/g/big", nil).want(t, 200)
	s.call(t, "DELETE", "/v1/subscriptions/g/big", nil).wantProblem(t, 404, "big")
	s.call(t, "GET", "/v1/subscriptions?group=none", nil).wantProblem(t, 404, "none")
	s.call(t, "GET", "/v1/subscriptions", nil).wantProblem(t, 400, "group")
	for _, body := range []string{
		`{"filter":{"colour":1}}`, `{"filter":{"type":[]}}`, `{"filter":{"conditions_sql":"true"}}`,
		`{"filter":{},"conditions_sql":"true"}`, `{"filter":[]}`, `{"params":{"a":1}}`,
	} {
		s.call(t, "PUT", "/v1/subscriptions/g/bad", body).wantProblem(t, 400, "")
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	s := serve(t)
	posthorntest.Publish(t, s.ph, posthorn.Message{Type: "a", Stream: "a"}, posthorn.Message{Type: "a", Stream: "b"})
	var found list[admin.Stream]
	s.call(t, "GET", "/v1/streams?limit=2", nil).want(t, 200, &found)
	equal(t, "first page", fmt.Sprint(found.Items[0].Name, found.Items[1].Name), "ab")
	s.call(t, "GET", "/v1/streams?limit=2&cursor="+found.Next, nil).want(t, 200, &found)
	equal(t, "second page", found.Items[0].Name, "default")
	s.call(t, "GET", "/v1/streams?cursor=!", nil).wantProblem(t, 400, "cursor")
	s.call(t, "GET", "/v1/streams?namespace=none", nil).wantProblem(t, 404, "none")
}

func TestNodesAndProjections(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.ph.Project("totals", "order.*", posthorn.ProjectionConfig{}, func(context.Context, pgx.Tx, []posthorn.Event) error { return nil })
	posthorntest.Run(t, s.ph)
	var nodes list[admin.NodeStatus]
	await.True(t, "a node is registered", func() bool {
		s.call(t, "GET", "/v1/nodes", nil).want(t, 200, &nodes)
		return len(nodes.Items) > 0
	})
	equal(t, "node", nodes.Items[0].ID, s.ph.NodeID())
	var projections list[admin.ProjectionStatus]
	await.True(t, "the projection is defined", func() bool {
		s.call(t, "GET", "/v1/projections", nil).want(t, 200, &projections)
		return len(projections.Items) > 0
	})
	var one admin.ProjectionStatus
	s.call(t, "GET", "/v1/projections/totals", nil).want(t, 200, &one)
	equal(t, "projection", one.Projection, "totals")
	s.call(t, "GET", "/v1/projections/none", nil).wantProblem(t, 404, "none")
	s.call(t, "DELETE", "/v1/nodes/nobody", nil).want(t, 200)
}

func TestStreamRoutes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var stream struct {
		Name          string `json:"name"`
		SecurityLevel string `json:"security_level"`
		Rotation      int    `json:"dek_rotation_days"`
		Keys          []any  `json:"keys"`
	}
	s.call(t, "GET", "/v1/streams/patients", nil).wantProblem(t, 404, "patients")
	s.call(t, "PUT", "/v1/streams/patients", `{"security_level": "confidential", "dek_rotation_days": 7}`).want(t, 204)
	s.call(t, "GET", "/v1/streams/patients", nil).want(t, 200, &stream)
	if stream.Name != "patients" || stream.SecurityLevel != "confidential" || stream.Rotation != 7 || stream.Keys == nil {
		t.Errorf("%+v", stream)
	}
	s.call(t, "POST", "/v1/streams/patients/rotate", nil).want(t, 204)
	s.call(t, "POST", "/v1/streams/none/rotate", nil).wantProblem(t, 403, "not confidential")
	s.call(t, "PUT", "/v1/streams/patients", `{"security_level": "secret"}`).wantProblem(t, 400, "")
	s.call(t, "POST", "/v1/streams/patients/shred", `{}`).want(t, 404)
}

func TestRelayImportAndArchiveRoutes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, `select posthorn.define_relay('default', 'to-redis', '{"streams": ["orders"]}')`)
	s.exec(t, `select posthorn.define_import('default', 'from-nats', 'nats://broker:4222', 'nats', '{orders}')`)
	var relays list[admin.RelayStatus]
	s.call(t, "GET", "/v1/relays", nil).want(t, 200, &relays)
	equal(t, "relays", len(relays.Items), 1)
	if body := s.call(t, "GET", "/v1/relays/to-redis", nil).want(t, 200).body; !strings.Contains(body, `"stuck":[]`) {
		t.Error(body)
	}
	if body := s.call(t, "GET", "/v1/imports/from-nats", nil).want(t, 200).body; !strings.Contains(body, `"streams_at_broker":[]`) {
		t.Error(body)
	}
	s.call(t, "GET", "/v1/relays/none", nil).wantProblem(t, 404, "none")
	s.call(t, "DELETE", "/v1/imports/from-nats", nil).want(t, 204)
	s.call(t, "DELETE", "/v1/imports/from-nats", nil).wantProblem(t, 404, "from-nats")
	s.exec(t, `select posthorn.define_archive('default', 'cold', 'file:///var/archive')`)
	var archives list[admin.ArchiveStatus]
	s.call(t, "GET", "/v1/archives", nil).want(t, 200, &archives)
	equal(t, "archives", len(archives.Items), 1)
	if body := s.call(t, "GET", "/v1/archives/cold", nil).want(t, 200).body; !strings.Contains(body, `"each_stream":[]`) {
		t.Error(body)
	}
	s.call(t, "POST", "/v1/archives/cold/relist", nil).want(t, 200)
	s.call(t, "POST", "/v1/archives/none/relist", nil).wantProblem(t, 404, "none")
	var imports list[admin.ImportStatus]
	s.call(t, "GET", "/v1/imports", nil).want(t, 200, &imports)
	equal(t, "imports", len(imports.Items), 0)
}
