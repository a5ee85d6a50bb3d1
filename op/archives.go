package op

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

var archives = Topic{"archives", "archive", "cold"}

const nameLeftOut = "NAME may be left out"

var ListArchives = listAll(About{
	Topic: archives, SQL: "archive_status", Command: "archive list",
	Does:    "List archives and their positions",
	More:    "Each has its lag, the size of its segments, and the error that stops it.",
	Example: "posthorn archive list --namespace shop --json",
}, (*admin.Admin).Archives)

// ArchiveDetails is an archive with its streams.
type ArchiveDetails struct {
	admin.ArchiveStatus
	EachStream []admin.ArchivedStream `json:"each_stream"`
}

var GetArchive = getNamed(About{
	Topic: archives, SQL: "archive_stream_status", Command: "archive show [NAME]",
	Does:    "Show an archive, stream by stream",
	More:    "Each stream has its segments, the events that wait for one, and the process that writes it.",
	Example: "posthorn archive show\nposthorn archive show cold --json",
	ByHand:  map[Face]string{Command: nameLeftOut},
}, func(a *admin.Admin, ctx context.Context, name string) (d ArchiveDetails, err error) {
	if d.ArchiveStatus, err = a.Archive(ctx, name); err != nil {
		return d, err
	}
	streams, err := a.ArchivedStreams(ctx, name)
	d.EachStream = append([]admin.ArchivedStream{}, streams...)
	return d, err
})

// Relisted is the number of streams whose manifests will be written.
type Relisted struct {
	Streams int64 `json:"streams" doc:"How many streams have manifests that will be written"`
}

var RelistArchive = Op[ByName, Relisted]{
	About: About{
		Topic: archives, Verb: "relist", Command: "archive relist [NAME]",
		Does: "Write all manifests of an archive again",
		More: "They are made of the records in the database: if they were lost, or if verify reports that they were altered. " +
			"The processes that run the archive write them.",
		Example: "posthorn archive relist",
		ByHand:  map[Face]string{Command: nameLeftOut},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByName) (Relisted, error) {
		n, err := a.RelistArchive(ctx, in.Name)
		return Relisted{n}, err
	},
	Done: func(_ *ByName, out Relisted) string {
		return fmt.Sprintf("the manifests of %s will be written again", Counted(out.Streams, "stream"))
	},
}
