package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

func (s *Server) webhooks() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/webhooks", id: "list-webhooks", tag: "webhooks",
		summary:     "List webhooks",
		description: "Each with its settings and the state of its endpoint. Secrets, and the values of headers, are never shown.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.Webhook], error) {
		all, err := s.admin(c).Webhooks(ctx)
		return page(slices.DeleteFunc(all, c.isHidden), ""), err
	})

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
	if err == nil && c.isHidden(webhook) {
		err = notFound(fmt.Sprintf("webhook '%s' does not exist in namespace %s", input.Name, c.namespace), "Create it first, or look for it in another namespace.")
	}
	return &bodyOf[admin.Webhook]{webhook}, err
}

// checkWebhook refuses webhooks that get events of a stream which the caller may not read,
// as if they did not exist. Otherwise the caller could have the events sent to an endpoint
// of its own.
func (s *Server) checkWebhook(ctx context.Context, c caller, input *in.ByName) error {
	if len(c.hidden) == 0 {
		return nil
	}
	_, err := s.getWebhook(ctx, c, input)
	return err
}

func (c caller) isHidden(w admin.Webhook) bool { return c.hiddenOf(w.Filter) != "" }

// hiddenOf returns a stream that a filter names and that is hidden from the caller, or "".
// A pattern does not count, since it does not match restricted streams.
func (c caller) hiddenOf(filter json.RawMessage) string {
	var fields struct {
		Stream json.RawMessage `json:"stream"`
	}
	_ = json.Unmarshal(filter, &fields) // the database checks the filter
	var one string
	var many []string
	if json.Unmarshal(fields.Stream, &one) == nil {
		many = []string{one}
	} else {
		_ = json.Unmarshal(fields.Stream, &many)
	}
	for _, stream := range many {
		if !c.mayRead(stream) {
			return stream
		}
	}
	return ""
}

func (s *Server) operatingWebhooks() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/enable", id: "enable-webhook", tag: "webhooks",
		summary: "Enable a webhook, or try a failing endpoint at once", scope: scopeAdmin, status: http.StatusNoContent,
		description: "The webhook gets the events that it missed while it was disabled, if the log still has them.",
	}, func(ctx context.Context, c caller, input *in.ByName) (*struct{}, error) {
		if err := s.checkWebhook(ctx, c, input); err != nil {
			return nil, err
		}
		return nil, s.admin(c).EnableWebhook(ctx, input.Name)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/disable", id: "disable-webhook", tag: "webhooks",
		summary: "Disable a webhook: it sends nothing until it is enabled", scope: scopeAdmin, status: http.StatusNoContent,
		description: "Events that wait to be sent, or to be tried again, are kept. A second call changes nothing.",
	}, func(ctx context.Context, c caller, input *disableWebhookInput) (*struct{}, error) {
		if err := s.checkWebhook(ctx, c, &input.ByName); err != nil {
			return nil, err
		}
		return nil, s.admin(c).DisableWebhook(ctx, input.Name, input.Reason)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/test", id: "test-webhook", tag: "webhooks",
		summary: "Send a test event to a webhook", scope: scopeAdmin,
		description: "The event has the type posthorn.webhook.test, and need not match the filter. The response has its id, by which the response of the endpoint can be found among the deliveries.",
	}, func(ctx context.Context, c caller, input *in.ByName) (output *idOutput, err error) {
		if err := s.checkWebhook(ctx, c, input); err != nil {
			return nil, err
		}
		output = &idOutput{}
		output.Body.ID, err = s.admin(c).TestWebhook(ctx, input.Name)
		return output, err
	})
}

type disableWebhookInput struct {
	in.ByName
	Reason string `query:"reason" doc:"A reason, shown to operators"`
}
