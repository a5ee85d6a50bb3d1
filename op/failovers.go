package op

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

var failovers = Topic{"failovers", "failover", "3"}

var ListFailovers = listAll(About{
	Topic: failovers, SQL: "list_failovers",
	Does: "List failovers, crashes and restores of the database, and how many events each has lost",
	More: "An event counts as lost if the broker of a relay, an archive, or a database that imports this log has it and the log has " +
		"not. Each relay and archive is compared once after each failover, crash and restore of the last week; a database that " +
		"imports is compared when the command failovers compare names it.",
	Example: "posthorn failovers list",
}, (*admin.Admin).Failovers)

// FailoverDetails is a failover with the events that it has lost.
type FailoverDetails struct {
	admin.Failover
	Events []admin.LostEvent `json:"events"`
}

// mostLost is how many lost events are shown.
const mostLost = 1000

var GetFailover = Op[ByID, FailoverDetails]{
	About: About{
		Topic: failovers, Verb: "get", Scope: Read, SQL: "list_lost_events",
		Does:   "Show one failover with the events that it has lost",
		More:   "The result has the first thousand of them, whole, and the ids under which they were brought back.",
		ByHand: map[Face]string{Command: "it prints the payloads of lost events"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (d FailoverDetails, err error) {
		if d.Failover, err = a.Failover(ctx, in.ID); err != nil {
			return d, err
		}
		lost, err := a.LostEvents(ctx, in.ID, mostLost)
		d.Events = append([]admin.LostEvent{}, lost...)
		return d, err
	},
}

var BringBackFailover = Op[ByID, int64]{
	About: About{
		Topic: failovers, Verb: "bring-back", Name: "bring-back-failover", Go: "BringBackFailover", SQL: "bring_back",
		Does: "Publish the events again that a failover has lost",
		More: "Each gets a new id, and its metadata name the old one as its origin. An event comes back once, however often this " +
			"is done. Groups get it; relays leave it out, since their broker has it.",
		Example: "posthorn failovers bring-back 3",
		Wakes:   true,
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (int64, error) {
		return a.BringBackFailover(ctx, in.ID)
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *ByID) (string, error) {
		f, err := a.Failover(ctx, in.ID)
		return fmt.Sprintf("publish %s again that failover %d has lost, under new ids", Counted(f.Lost-f.BroughtBack, "event"), in.ID), err
	},
	Done: func(in *ByID, n int64) string {
		return fmt.Sprintf("brought %s back that failover %d had lost", Counted(n, "event"), in.ID)
	},
}
