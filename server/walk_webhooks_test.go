package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/webhook"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/posthorntest"
)

// endpoint makes the webhook crm, whose endpoint answers with a status, and sends to it.
func (p *person) endpoint() (status *atomic.Int64) {
	p.Helper()
	status = &atomic.Int64{}
	status.Store(http.StatusOK)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("the answer of crm"))
	}))
	p.Cleanup(receiver.Close)
	_, err := p.ph.Admin().CreateWebhook(p.Context(), "crm", admin.WebhookSettings{URL: receiver.URL, Delays: []string{"1 day"}})
	if err != nil {
		p.Fatal(err)
	}
	sender := send.New(send.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	p.Cleanup(sender.Close)
	webhook.Deliver(p.ph.Internal(), sender)
	posthorntest.Run(p.T, p.ph)
	return status
}

// request waits until a request with an event of a type had an outcome.
func (p *person) request(eventType, outcome string) {
	p.Helper()
	p.finds(fmt.Sprintf("select count(*) > 0 from posthorn.webhook_attempts a join posthorn.events e on e.id = a.event_id where e.type = '%s' and outcome = '%s'", eventType, outcome))
}

// An endpoint gets a test. It is disabled, misses an event, and gets it when it is
// enabled again.
func walkWebhooks(p *person) {
	p.endpoint()
	p.visit("/")
	p.goTo("Webhooks")
	p.clickIn("crm", "Send a test")
	p.sees("Webhook crm gets a test event.")
	p.request("posthorn.webhook.test", "delivered")
	p.clickIn("crm", "crm")
	p.seesIn("delivered", "200", "the answer of crm")
	p.click("Disable…")
	p.fill("Reason. A reason, shown to operators", "until Monday")
	p.click("Disable")
	p.sees("It is disabled: until Monday", "Its events wait in the log")
	p.exec(p.T, "select posthorn.publish('default', 'order.placed')")
	p.goTo("Webhooks")
	p.seesIn("crm", "disabled")
	p.clickIn("crm", "Enable")
	p.sees("Webhook crm is enabled")
	p.request("order.placed", "delivered")
	p.recorded("test-webhook crm 1", "disable-webhook crm 1", "enable-webhook crm 1")
}

// A webhook is made, changed and deleted. Its secret is shown after it was made and after a
// rotation.
func walkMakeWebhook(p *person) {
	p.visit("/")
	p.goTo("Webhooks")
	p.click("Make a webhook…")
	p.fill("Name. The name of the webhook", "crm")
	p.fill("Url. Where to send; required for a new webhook", "https://crm.example/hooks")
	p.choose("Order. Whether events of one key come one after another. Default: none", "key")
	p.click("Save")
	p.sees("The secret of webhook crm is shown only this once", "whsec_")
	p.click("Back")
	p.sees("Webhook crm", "in order per key")
	p.click("Rotate the secret…")
	p.click("Rotate")
	p.sees("whsec_")
	p.click("Back")
	p.click("Change…")
	p.fill("Url. Where to send; required for a new webhook", "https://new.example/hooks")
	p.click("Save")
	p.sees("Webhook crm is changed.", "https://new.example/hooks")
	p.finds("select count(*) = 1 from posthorn.webhooks where ordering = 'key' and timeout = '15 seconds' and cardinality(delays) = 9")
	p.click("Delete…")
	p.sees("Delete webhook crm (https://new.example/hooks) with the 0 events that it is owed?")
	p.click("Delete")
	p.sees("There is no webhook.")
	p.recorded("create-webhook crm 1", "rotate-webhook-secret crm 1", "change-webhook crm 1", "delete-webhook crm 0")
}

// The page shows the answers of an endpoint that fails, and sends to it again.
func walkFailingWebhook(p *person) {
	status := p.endpoint()
	status.Store(http.StatusServiceUnavailable)
	p.exec(p.T, "select posthorn.publish('default', 'order.placed')")
	p.request("order.placed", "retry")
	p.visit("/ui/default/webhook?name=crm")
	p.sees("Requests fail", "the endpoint answered 503")
	p.seesIn("the answer of crm", "retry", "503", "order.placed")
	p.sees("0% of 1 request succeeded")
	p.inSight("the endpoint answered 503", "the answer of crm", "retry", "Send again", "Disable…")
	p.click("day")
	p.sees("0% of 1 request succeeded")
	status.Store(http.StatusOK)
	p.click("Send again")
	p.sees("Webhook crm gets 1 event again.")
	p.request("order.placed", "delivered")
	p.sees("delivered", "50% of 2 requests succeeded")
	p.click("Only those that failed")
	p.seesIn("the answer of crm", "retry", "503")
	p.seesNone("delivered")
	p.recorded("redeliver-webhook crm 1")
}
