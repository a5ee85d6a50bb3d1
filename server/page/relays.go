package page

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// relays are the pages of everything that one process at a time moves between the log
// and another system: relays, imports and archives.
func (p *Pages) relays() {
	p.screen(Screen{Path: "relays", Live: true, Show: listRelays})
	p.screen(Screen{Path: "relay", Under: "relays", Live: true, Show: showRelay})
	p.screen(Screen{Path: "imports", Live: true, Show: listImports})
	p.screen(Screen{Path: "import", Under: "imports", Live: true, Show: showImport})
	p.operation(op.DeleteImport, func(r *Request) string { return r.Link("imports") })
	p.screen(Screen{Path: "archives", Live: true, Show: listArchives})
	p.screen(Screen{Path: "archive", Under: "archives", Live: true, Show: showArchive})
	p.operation(op.RelistArchive, nil)
	for _, verb := range []string{"pause", "resume"} {
		p.action(Action{Path: "relay/" + verb, Do: func(ctx context.Context, r *Request) (string, string, error) {
			name := r.Value("name")
			err := r.Call(ctx, http.MethodPost, "/v1/groups/"+segment(name)+"/"+verb, nil, nil)
			return "", name + ": " + verb + "d.", err
		}})
	}
}

func listRelays(ctx context.Context, r *Request) (*View, error) {
	relays, err := r.Admin.Relays(ctx)
	return &View{Title: "Relays", Data: relays}, err
}

func listImports(ctx context.Context, r *Request) (*View, error) {
	imports, err := r.Admin.Imports(ctx)
	return &View{Title: "Imports", Data: imports}, err
}

func listArchives(ctx context.Context, r *Request) (*View, error) {
	archives, err := r.Admin.Archives(ctx)
	return &View{Title: "Archives", Data: archives}, err
}

func showRelay(ctx context.Context, r *Request) (*View, error) {
	relay, err := op.GetRelay.Call(ctx, r.Admin, &op.ByName{Name: r.Value("name")})
	return &View{Title: "Relay " + relay.Relay, Data: struct {
		Relay op.RelayDetails
		Stuck []admin.StuckStream
	}{relay, relay.Stuck}}, err
}

func showImport(ctx context.Context, r *Request) (*View, error) {
	status, err := op.GetImport.Call(ctx, r.Admin, &op.ByName{Name: r.Value("name")})
	return &View{Title: "Import " + status.Import, Data: struct {
		Import  op.ImportDetails
		Streams []admin.ImportedStream
	}{status, status.Known}}, err
}

func showArchive(ctx context.Context, r *Request) (*View, error) {
	archive, err := op.GetArchive.Call(ctx, r.Admin, &op.ByName{Name: r.Value("name")})
	return &View{Title: "Archive " + archive.Archive, Data: struct {
		Archive op.ArchiveDetails
		Streams []admin.ArchivedStream
	}{archive, archive.EachStream}}, err
}
