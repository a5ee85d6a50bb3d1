package op

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

var relays = Topic{"relays", "relay", "relay"}

var ListRelays = listAll(About{
	Topic: relays, SQL: "relay_status",
	Does:    "List relays, their leaders and their positions",
	More:    "Each has its lag, its stuck streams, and the error that stops it.",
	Example: "posthorn relays list --namespace shop --json",
}, (*admin.Admin).Relays)

// RelayDetails is a relay with its stuck streams.
type RelayDetails struct {
	admin.RelayStatus
	Stuck []admin.StuckStream `json:"stuck"`
}

var GetRelay = getNamed(About{
	Topic: relays, SQL: "relay_status",
	Does: "Show one relay: its leader, its position and its stuck streams",
	More: "A stream is stuck while the broker does not take its events.",
}, func(a *admin.Admin, ctx context.Context, name string) (d RelayDetails, err error) {
	if d.RelayStatus, err = a.Relay(ctx, name); err != nil {
		return d, err
	}
	stuck, err := a.StuckStreams(ctx, name)
	d.Stuck = append([]admin.StuckStream{}, stuck...)
	return d, err
})
