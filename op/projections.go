package op

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

var projections = Topic{"projections", "projection", "totals"}

var ListProjections = listAll(About{
	Topic: projections, SQL: "projection_status",
	Does:    "List projections and their positions",
	More:    "Each has its position in the log, its lag, and the error that stops it.",
	Example: "posthorn projections list --namespace shop --json",
}, (*admin.Admin).Projections)

var GetProjection = getNamed(About{
	Topic: projections, SQL: "projection_status",
	Does:    "Show one projection",
	More:    "The result has its position in the log, its lag, and the error that stops it.",
	Without: map[Face]string{Page: "the list shows all of each, and links to its group"},
}, (*admin.Admin).Projection)

// RebuildProjectionInput says which tables a rebuild empties.
type RebuildProjectionInput struct {
	ByName
	Body struct {
		Truncate []string `json:"truncate" flag:"truncate" doc:"The tables of the projection, named as in SQL"`
		Partial  bool     `json:"partial,omitempty" flag:"partial" doc:"true: even if the log no longer has all events"`
	}
}

const ownTables = "it empties tables by their names, with the rights of the server instead of those of the caller"

var RebuildProjection = Op[RebuildProjectionInput, None]{
	About: About{
		Topic: projections, Verb: "rebuild", Command: "projections rebuild NAME --truncate TABLE",
		Does:    "Empty a projection's tables and apply the log to them again",
		More:    "One transaction truncates the tables and moves the projection to the beginning.",
		Example: "posthorn projections rebuild totals --truncate shop.totals",
		ByHand:  map[Face]string{Command: "it waits, and shows the progress"},
		Without: map[Face]string{HTTP: ownTables, Page: ownTables},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *RebuildProjectionInput) (None, error) {
		return None{}, a.RebuildProjection(ctx, in.Name, admin.RebuildConfig{Truncate: in.Body.Truncate, Partial: in.Body.Partial})
	},
	Done: func(in *RebuildProjectionInput, _ None) string { return "projection " + in.Name + " is being rebuilt" },
}

var AbandonReplacement = asking(onNamed(About{
	Topic: projections, Verb: "abandon", Name: "abandon-replacement", Go: "AbandonReplacement", SQL: "abandon_replacement",
	Does: "Give up the replacement of a projection",
	More: "The projection stays as it is, and so do the tables of the replacement that a program has begun to build. " +
		"From then on retention no longer keeps the log for the replacement.",
	Example: "posthorn projections abandon totals --yes",
}, (*admin.Admin).AbandonReplacement, "the replacement of projection %s is given up"),
	func(_ context.Context, _ *admin.Admin, in *ByName) (string, error) {
		return "give up the replacement of projection " + in.Name, nil
	})
