package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

// webhookKey is the key by which a receiver checks signatures.
type webhookKey struct {
	Secret    string `json:"secret,omitempty" doc:"whsec_…. No other response shows it"`
	PublicKey string `json:"public_key,omitempty" doc:"whpk_…, of ed25519. Its private key is never shown"`
}

// keyOf returns the key for receivers that belongs to a secret. The secret of ed25519 is a
// private key, which is not returned: receivers need the public key only.
func keyOf(secret string, w admin.Webhook) webhookKey {
	if strings.HasPrefix(secret, "whsk_") && len(w.Secrets) > 0 {
		return webhookKey{PublicKey: w.Secrets[0].PublicKey}
	}
	return webhookKey{Secret: secret}
}

// readWebhook returns the settings in a body.
func readWebhook(b in.WebhookSettings) (settings admin.WebhookSettings, err error) {
	settings = b.WebhookSettings
	if b.Filter == nil && b.Condition == "" && b.Params == nil {
		return settings, nil
	}
	wanted, err := op.FilterOf(b.Filter, b.Condition, b.Params)
	if err != nil {
		return settings, err
	}
	settings.Filter = &wanted
	return settings, nil
}

type createWebhookInput struct {
	in.Namespace
	Body struct {
		Name string `json:"name" doc:"The name of the webhook" example:"crm"`
		in.WebhookSettings
	}
}

type createdWebhookOutput struct {
	Body struct {
		admin.Webhook
		Secret    string `json:"secret,omitempty" doc:"whsec_…. No other response shows it"`
		PublicKey string `json:"public_key,omitempty" doc:"whpk_…, of ed25519. Its private key is never shown"`
	}
}

type changeWebhookInput struct {
	in.ByName
	Body in.WebhookSettings
}

type rotateWebhookInput struct {
	in.ByName
	Body *struct {
		Secret  string  `json:"secret,omitempty" doc:"whsec_…, whsk_…, or ed25519 to generate a pair of keys. Default: a new whsec_…"`
		KeepOld *period `json:"keep_old,omitempty" doc:"How long requests are signed with the old secret too; 0 for no longer. Default: 24 hours"`
	}
}

func (s *Server) settingWebhooks() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks", id: "create-webhook", tag: "webhooks",
		summary: "Create a webhook", scope: scopeAdmin, status: http.StatusCreated,
		description: "The webhook gets events that are published from now on and match its filter. The response has the secret by which the receiver checks signatures; no other response shows it.",
	}, s.createWebhook)

	register(s, operation{
		method: http.MethodPatch, path: "/v1/webhooks/{name}", id: "change-webhook", tag: "webhooks",
		summary: "Change the settings of a webhook", scope: scopeAdmin,
		description: "A setting that the body leaves out stays as it is. A filter replaces the whole filter, and headers replace all headers.",
	}, s.changeWebhook)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/webhooks/{name}", id: "delete-webhook", tag: "webhooks",
		summary: "Delete a webhook", scope: scopeAdmin,
		description: "Events that wait to be sent, or to be tried again, are no longer sent; the response has their number. Its dead letters stay.",
	}, func(ctx context.Context, c caller, input *in.ByName) (output *bodyOf[op.Owed], err error) {
		output = &bodyOf[op.Owed]{}
		output.Body.Owed, err = s.admin(c).DeleteWebhook(ctx, input.Name)
		return output, err
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/rotate", id: "rotate-webhook-secret", tag: "webhooks",
		summary: "Rotate the secret of a webhook", scope: scopeAdmin,
		description: "The response has the new secret; no other response shows it. Until keep_old is over, requests have a signature of the old secret too.",
	}, s.rotateWebhook)
}

func (s *Server) createWebhook(ctx context.Context, c caller, input *createWebhookInput) (*createdWebhookOutput, error) {
	settings, err := readWebhook(input.Body.WebhookSettings)
	if err != nil {
		return nil, err
	}
	secret, err := s.admin(c).CreateWebhook(ctx, input.Body.Name, settings)
	if err != nil {
		return nil, err
	}
	created, err := s.admin(c).Webhook(ctx, input.Body.Name)
	output, key := &createdWebhookOutput{}, keyOf(secret, created)
	output.Body.Webhook, output.Body.Secret, output.Body.PublicKey = created, key.Secret, key.PublicKey
	return output, err
}

func (s *Server) changeWebhook(ctx context.Context, c caller, input *changeWebhookInput) (*bodyOf[admin.Webhook], error) {
	settings, err := readWebhook(input.Body)
	if err != nil {
		return nil, err
	}
	if err := s.admin(c).ChangeWebhook(ctx, input.Name, settings); err != nil {
		return nil, err
	}
	return s.getWebhook(ctx, c, &input.ByName)
}

func (s *Server) rotateWebhook(ctx context.Context, c caller, input *rotateWebhookInput) (*bodyOf[webhookKey], error) {
	given, keepOld := "", time.Duration(0)
	if input.Body != nil {
		given = input.Body.Secret
		if input.Body.KeepOld != nil {
			keepOld = cmp.Or(time.Duration(*input.Body.KeepOld), -1)
		}
	}
	secret, err := s.admin(c).RotateWebhookSecret(ctx, input.Name, given, keepOld)
	if err != nil {
		return nil, err
	}
	webhook, err := s.admin(c).Webhook(ctx, input.Name)
	return &bodyOf[webhookKey]{keyOf(secret, webhook)}, err
}
