package server

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

func (s *Server) webhooks() {
	registerList(s, operation{
		method: http.MethodGet, path: "/v1/webhooks", id: "list-webhooks", tag: "webhooks",
		summary:     "List webhooks",
		description: "Each with its settings and the state of its endpoint. Secrets, and the values of headers, are never shown.",
		scope:       scopeRead,
	}, (*admin.Admin).Webhooks)

	register(s, operation{
		method: http.MethodGet, path: "/v1/webhooks/{name}", id: "get-webhook", tag: "webhooks",
		summary:     "Get a webhook",
		description: "Its settings and the state of its endpoint. Secrets, and the values of headers, are never shown.",
		scope:       scopeRead,
	}, s.getWebhook)

	s.settingWebhooks()
	s.operatingWebhooks()
	s.webhookDeliveries()
}

func (s *Server) getWebhook(ctx context.Context, c caller, input *in.ByName) (*bodyOf[admin.Webhook], error) {
	webhook, err := s.admin(c).Webhook(ctx, input.Name)
	return &bodyOf[admin.Webhook]{webhook}, err
}

func (s *Server) operatingWebhooks() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/enable", id: "enable-webhook", tag: "webhooks",
		summary: "Enable a webhook, or try a failing endpoint at once", scope: scopeAdmin, status: http.StatusNoContent,
		description: "The webhook gets the events that it missed while it was disabled, if the log still has them.",
	}, func(ctx context.Context, c caller, input *in.ByName) (*struct{}, error) {
		return nil, s.admin(c).EnableWebhook(ctx, input.Name)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/disable", id: "disable-webhook", tag: "webhooks",
		summary: "Disable a webhook: it sends nothing until it is enabled", scope: scopeAdmin, status: http.StatusNoContent,
		description: "Events that wait to be sent, or to be tried again, are kept. A second call changes nothing.",
	}, func(ctx context.Context, c caller, input *disableWebhookInput) (*struct{}, error) {
		return nil, s.admin(c).DisableWebhook(ctx, input.Name, input.Reason)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/test", id: "test-webhook", tag: "webhooks",
		summary: "Send a test event to a webhook", scope: scopeAdmin,
		description: "The event has the type posthorn.webhook.test, and need not match the filter. The response has its id, by which the response of the endpoint can be found among the deliveries.",
	}, func(ctx context.Context, c caller, input *in.ByName) (*bodyOf[op.EventID], error) {
		id, err := s.admin(c).TestWebhook(ctx, input.Name)
		return &bodyOf[op.EventID]{op.EventID{ID: id}}, err
	})
}

type disableWebhookInput struct {
	in.ByName
	Reason string `query:"reason" doc:"A reason, shown to operators"`
}
