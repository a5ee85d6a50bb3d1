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

type webhookInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the webhook"`
}

type webhookOutput struct{ Body admin.Webhook }

func (s *Server) webhooks() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/webhooks", id: "list-webhooks", tag: "webhooks",
		summary:     "Webhooks and how their endpoints do",
		description: "Secrets, and the values of headers, are never shown.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.Webhook], error) {
		all, err := s.admin(c).Webhooks(ctx)
		return page(slices.DeleteFunc(all, c.isHidden), ""), err
	})

	register(s, operation{
		method: http.MethodGet, path: "/v1/webhooks/{name}", id: "get-webhook", tag: "webhooks",
		summary:     "One webhook",
		description: "Its settings, and how its endpoint does. Secrets, and the values of headers, are never shown.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *webhookInput) (*webhookOutput, error) {
		return s.webhookNamed(ctx, c, input.Name)
	})

	s.settingWebhooks()
	s.operatingWebhooks()
	s.webhookDeliveries()
}

func (s *Server) webhookNamed(ctx context.Context, c caller, name string) (*webhookOutput, error) {
	webhook, err := s.admin(c).Webhook(ctx, name)
	if err == nil && c.isHidden(webhook) {
		err = notFound(fmt.Sprintf("webhook '%s' does not exist in namespace %s", name, c.namespace), "Create it first, or look for it in another namespace.")
	}
	return &webhookOutput{webhook}, err
}

// checkWebhook keeps callers from webhooks that get events of streams which they may not
// read: as if there were none. Otherwise such a caller could have the events sent to an
// endpoint of its own.
func (s *Server) checkWebhook(ctx context.Context, c caller, name string) error {
	if len(c.hidden) == 0 {
		return nil
	}
	_, err := s.webhookNamed(ctx, c, name)
	return err
}

func (c caller) isHidden(w admin.Webhook) bool { return c.hiddenOf(w.Filter) != "" }

// hiddenOf is a stream which a filter names, and which is hidden from the caller. Patterns
// are no names: they get no events of restricted streams.
func (c caller) hiddenOf(filter json.RawMessage) string {
	var asks struct {
		Stream json.RawMessage `json:"stream"`
	}
	_ = json.Unmarshal(filter, &asks) // the database checks its form
	var one string
	var many []string
	if json.Unmarshal(asks.Stream, &one) == nil {
		many = []string{one}
	} else {
		_ = json.Unmarshal(asks.Stream, &many)
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
		summary: "Let a webhook go on, with what it missed", scope: scopeAdmin, status: http.StatusNoContent,
		description: "It gets the events that it missed while it was disabled, as far as the log still has them. An endpoint that fails is tried at once.",
	}, func(ctx context.Context, c caller, input *webhookInput) (*struct{}, error) {
		if err := s.checkWebhook(ctx, c, input.Name); err != nil {
			return nil, err
		}
		return nil, s.admin(c).EnableWebhook(ctx, input.Name)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/disable", id: "disable-webhook", tag: "webhooks",
		summary: "Send nothing to a webhook until it is enabled", scope: scopeAdmin, status: http.StatusNoContent,
		description: "The events that it is owed stay. A second call changes nothing.",
	}, func(ctx context.Context, c caller, input *disableWebhookInput) (*struct{}, error) {
		if err := s.checkWebhook(ctx, c, input.Name); err != nil {
			return nil, err
		}
		return nil, s.admin(c).DisableWebhook(ctx, input.Name, input.Reason)
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/test", id: "test-webhook", tag: "webhooks",
		summary: "Send a test event to a webhook", scope: scopeAdmin,
		description: "The event has the type posthorn.webhook.test, and goes to this webhook whatever its filter. The answer has its id, by which deliveries shows the answer of the endpoint.",
	}, func(ctx context.Context, c caller, input *webhookInput) (output *idOutput, err error) {
		if err := s.checkWebhook(ctx, c, input.Name); err != nil {
			return nil, err
		}
		output = &idOutput{}
		output.Body.ID, err = s.admin(c).TestWebhook(ctx, input.Name)
		return output, err
	})
}

type disableWebhookInput struct {
	in.Namespace
	Name   string `path:"name" doc:"The name of the webhook"`
	Reason string `query:"reason" doc:"A text for people"`
}
