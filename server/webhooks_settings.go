package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

// webhookKey is what a receiver needs to check signatures.
type webhookKey struct {
	Secret    string `json:"secret,omitempty" doc:"whsec_…, shown only this once"`
	PublicKey string `json:"public_key,omitempty" doc:"whpk_…, of ed25519. Its private key is never shown"`
}

// keyOf is the key that belongs to a secret. The private key of ed25519 is of no use to a
// receiver, and stays in the database.
func keyOf(secret string, w admin.Webhook) webhookKey {
	if strings.HasPrefix(secret, "whsk_") && len(w.Secrets) > 0 {
		return webhookKey{PublicKey: w.Secrets[0].PublicKey}
	}
	return webhookKey{Secret: secret}
}

// readWebhook makes settings of a body, unless they name a stream that is hidden from the
// caller.
func readWebhook(c caller, b in.WebhookSettings) (settings admin.WebhookSettings, err error) {
	settings = b.WebhookSettings
	if b.Filter == nil && b.Condition == "" && b.Params == nil {
		return settings, nil
	}
	wanted, err := readSubscription(b.Filter, b.Condition, b.Params)
	if err != nil {
		return settings, err
	}
	if stream := c.hiddenOf(wanted.Filter); stream != "" {
		return settings, newProblem(http.StatusForbidden, "the token does not name the restricted stream "+stream,
			"Use one that does: posthorn tokens create NAME --scope admin --stream "+stream+".")
	}
	settings.Filter = &wanted
	return settings, nil
}

type createWebhookInput struct {
	in.Namespace
	Body struct {
		Name string `json:"name" doc:"Of the webhook" example:"crm"`
		in.WebhookSettings
	}
}

type createdWebhookOutput struct {
	Body struct {
		admin.Webhook
		Secret    string `json:"secret,omitempty" doc:"whsec_…, shown only this once"`
		PublicKey string `json:"public_key,omitempty" doc:"whpk_…, of ed25519. Its private key is never shown"`
	}
}

type changeWebhookInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the webhook"`
	Body in.WebhookSettings
}

type rotateWebhookInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the webhook"`
	Body *struct {
		Secret  string  `json:"secret,omitempty" doc:"whsec_…, whsk_…, or ed25519 to have a pair of keys made. Default: a new whsec_…"`
		KeepOld *period `json:"keep_old,omitempty" doc:"How long the old secret signs too; 0 ends it now. Default: 24 hours"`
	}
}

func (s *Server) settingWebhooks() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks", id: "create-webhook", tag: "webhooks",
		summary: "Make a webhook", scope: scopeAdmin, status: http.StatusCreated,
		description: "It gets the events that are published from now on and pass its filter. The answer has the secret by which the receiver checks signatures: it is shown only this once.",
	}, s.createWebhook)

	register(s, operation{
		method: http.MethodPatch, path: "/v1/webhooks/{name}", id: "change-webhook", tag: "webhooks",
		summary: "Change settings of a webhook", scope: scopeAdmin,
		description: "A setting that the body leaves out stays as it is. A filter replaces all that there was, and so do headers.",
	}, s.changeWebhook)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/webhooks/{name}", id: "delete-webhook", tag: "webhooks",
		summary: "Delete a webhook with the events that it is owed", scope: scopeAdmin,
		description: "Its dead letters stay. The answer has the number of events that were owed to it.",
	}, func(ctx context.Context, c caller, input *webhookInput) (output *owedOutput, err error) {
		if err := s.checkWebhook(ctx, c, input.Name); err != nil {
			return nil, err
		}
		output = &owedOutput{}
		output.Body.Owed, err = s.admin(c).DeleteWebhook(ctx, input.Name)
		return output, err
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/webhooks/{name}/rotate", id: "rotate-webhook-secret", tag: "webhooks",
		summary: "Give a webhook a new secret", scope: scopeAdmin,
		description: "The answer has it, only this once. For a while requests have a signature of the old secret too.",
	}, s.rotateWebhook)
}

func (s *Server) createWebhook(ctx context.Context, c caller, input *createWebhookInput) (*createdWebhookOutput, error) {
	settings, err := readWebhook(c, input.Body.WebhookSettings)
	if err != nil {
		return nil, err
	}
	secret, err := s.admin(c).CreateWebhook(ctx, input.Body.Name, settings)
	if err != nil {
		return nil, err
	}
	made, err := s.admin(c).Webhook(ctx, input.Body.Name)
	output, key := &createdWebhookOutput{}, keyOf(secret, made)
	output.Body.Webhook, output.Body.Secret, output.Body.PublicKey = made, key.Secret, key.PublicKey
	return output, err
}

func (s *Server) changeWebhook(ctx context.Context, c caller, input *changeWebhookInput) (*webhookOutput, error) {
	if err := s.checkWebhook(ctx, c, input.Name); err != nil {
		return nil, err
	}
	settings, err := readWebhook(c, input.Body)
	if err != nil {
		return nil, err
	}
	if err := s.admin(c).ChangeWebhook(ctx, input.Name, settings); err != nil {
		return nil, err
	}
	return s.webhookNamed(ctx, c, input.Name)
}

func (s *Server) rotateWebhook(ctx context.Context, c caller, input *rotateWebhookInput) (*bodyOf[webhookKey], error) {
	if err := s.checkWebhook(ctx, c, input.Name); err != nil {
		return nil, err
	}
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
