package main

import (
	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
)

// deliverWebhooks lets a client send to the webhooks of all namespaces while it runs.
// The caller closes what it returns after that.
func deliverWebhooks(ph *posthorn.Client, config send.Config) *send.Client {
	sender := send.New(config)
	webhook.Deliver(ph.Internal(), sender)
	return sender
}
