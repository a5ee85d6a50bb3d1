package server

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

// rotateWebhookInput is that of package op; its body may be left out.
type rotateWebhookInput struct {
	in.ByName
	Body *struct {
		Secret  string  `json:"secret,omitempty" doc:"whsec_…, whsk_…, or ed25519 to generate a pair of keys. Default: a new whsec_…"`
		KeepOld *period `json:"keep_old,omitempty" doc:"How long requests are signed with the old secret too; 0 for no longer. Default: 24 hours"`
	}
}

func (s *Server) rotateWebhook(ctx context.Context, c caller, input *rotateWebhookInput) (*bodyOf[op.WebhookKey], error) {
	rotate := &op.RotateWebhookSecretInput{ByName: input.ByName}
	if input.Body != nil {
		rotate.Body.Secret = input.Body.Secret
		if input.Body.KeepOld != nil {
			rotate.Body.KeepOld = time.Duration(*input.Body.KeepOld).String()
		}
	}
	key, err := perform(ctx, s, c, op.RotateWebhookSecret, rotate)
	return &bodyOf[op.WebhookKey]{key.WebhookKey}, err
}

func (s *Server) listWebhookDeliveries(ctx context.Context, c caller, input *op.ListWebhookDeliveriesInput) (*listOf[admin.WebhookAttempt], error) {
	var err error
	if input.Before, err = readCursor("deliveries", input.Cursor); err != nil {
		return nil, err
	}
	found, err := perform(ctx, s, c, op.ListWebhookDeliveries, input)
	next := ""
	if len(found) == input.Limit {
		next = writeCursor("deliveries", found[len(found)-1].ID)
	}
	return page(found, next), err
}
