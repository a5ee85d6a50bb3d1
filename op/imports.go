package op

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

var imports = Topic{"imports", "import", "import"}

var ListImports = listAll(About{
	Topic: imports, SQL: "import_status",
	Does:    "List imports, their leaders and their positions",
	More:    "Each has its lag at the broker, and the error that stops it.",
	Example: "posthorn imports list --namespace shop --json",
}, (*admin.Admin).Imports)

// ImportDetails is an import with its position in each stream, and its dead letters.
type ImportDetails struct {
	admin.ImportStatus
	Known       []admin.ImportedStream   `json:"streams_at_broker"`
	DeadLetters []admin.ImportDeadLetter `json:"dead_letters"`
}

var GetImport = getNamed(About{
	Topic: imports, SQL: "import_stream_status",
	Does: "Show one import: its leader, its position in each stream, and its dead letters",
	More: "A position has the form of the broker. A dead letter is an event that was not published, since another event was imported under its id.",
}, func(a *admin.Admin, ctx context.Context, name string) (d ImportDetails, err error) {
	if d.ImportStatus, err = a.Import(ctx, name); err != nil {
		return d, err
	}
	known, err := a.ImportedStreams(ctx, name)
	if err != nil {
		return d, err
	}
	d.Known = append([]admin.ImportedStream{}, known...)
	dead, err := a.ImportDeadLetters(ctx, name)
	d.DeadLetters = append([]admin.ImportDeadLetter{}, dead...)
	return d, err
})

var DeleteImport = asking(onNamed(About{
	Topic: imports, Verb: "delete",
	Does: "Delete an import with its position",
	More: "The events that it published stay. Programs that run it end with an error; when one is started again, it begins " +
		"with the first event that the broker has, and publishes all events of the broker a second time.",
	Example: "posthorn imports delete import",
}, (*admin.Admin).DeleteImport, "deleted import %s"), func(_ context.Context, _ *admin.Admin, in *ByName) (string, error) {
	return "delete import " + in.Name + " with its position; when it starts again, it publishes all events of the broker once more", nil
})
