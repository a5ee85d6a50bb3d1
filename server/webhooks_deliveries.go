package server

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type webhookDeliveriesInput struct {
	in.ByName
	in.Page
	Event  int64 `query:"event" minimum:"1" doc:"Only deliveries of this event"`
	Failed bool  `query:"failed" doc:"true: only deliveries that failed"`
}

type redeliverWebhookInput struct {
	in.ByName
	Body struct {
		Events []int64 `json:"events" minItems:"1" maxItems:"1000" doc:"The ids of the events"`
	}
}

func (s *Server) webhookDeliveries() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/webhooks/{name}/deliveries", id: "list-webhook-deliveries", tag: "webhooks",
		summary:     "List the deliveries of a webhook, newest first",
		description: "Each with its time, and the status and the beginning of the endpoint's response. They are kept for webhook_attempts_retention_period.",
		scope:       scopeRead,
	}, s.listWebhookDeliveries)

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/redeliver", id: "redeliver-webhook", tag: "webhooks",
		summary: "Send events to a webhook again", scope: scopeAdmin,
		description: "The events need not match the filter, and may have been delivered before. Dead letters of the webhook are redriven. The response has the number of events.",
	}, s.redeliverWebhook)
}

func (s *Server) listWebhookDeliveries(ctx context.Context, c caller, input *webhookDeliveriesInput) (*listOf[admin.WebhookAttempt], error) {
	if _, err := s.getWebhook(ctx, c, &input.ByName); err != nil {
		return nil, err
	}
	filter := admin.WebhookAttemptFilter{Webhook: input.Name, EventID: input.Event, Failed: input.Failed, Limit: input.Limit}
	var err error
	if filter.Before, err = readCursor("deliveries", input.Cursor); err != nil {
		return nil, err
	}
	found, err := s.admin(c).WebhookAttempts(ctx, filter)
	next := ""
	if len(found) == input.Limit {
		next = writeCursor("deliveries", found[len(found)-1].ID)
	}
	return page(found, next), err
}

func (s *Server) redeliverWebhook(ctx context.Context, c caller, input *redeliverWebhookInput) (output *countOutput, err error) {
	output = &countOutput{}
	output.Body.Count, err = s.admin(c).RedeliverWebhook(ctx, input.Name, input.Body.Events...)
	return output, err
}
