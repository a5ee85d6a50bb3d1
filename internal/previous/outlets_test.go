package previous_test

import (
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testredis"
)

// outlets are a broker and an archive, and the programs that write the events of a world to them.
type outlets struct {
	*world
	broker          *testredis.Database
	archive         string // a URL
	relay, archiver *testchild.Child
}

func (w *world) open(v version) *outlets {
	w.t.Helper()
	o := &outlets{world: w, broker: testredis.NewDatabase(w.t), archive: "file://" + w.t.TempDir()}
	o.begin(v)
	return o
}

func (o *outlets) begin(v version) {
	o.relay = testchild.StartProgram(o.t, o.command(v.posthorn, "relay", o.broker.URL()))
	o.archiver = testchild.StartProgram(o.t, o.command(v.posthorn, "archive", o.archive, "--segment-age", "1us"))
}

func (o *outlets) close() {
	o.t.Helper()
	end(o.t, o.relay)
	end(o.t, o.archiver)
}

// pass ends the programs, and starts those of another version in their place.
func (o *outlets) pass(v version) {
	o.t.Helper()
	o.close()
	o.begin(v)
}

// write waits until the programs have written more, while events are published.
func (o *outlets) write() {
	o.t.Helper()
	sent, archived := o.sent(), o.archived()
	await.True(o.t, "the relay and the archive have more events", func() bool { return o.sent() >= sent+10 && o.archived() >= archived+10 })
}

// complete waits until all events are written.
func (o *outlets) complete() {
	o.t.Helper()
	events := o.count("select count(*) from posthorn.events")
	await.True(o.t, "the relay and the archive have all events", func() bool {
		return o.sent() == events && o.archived() == events && o.count("select count(*) from posthorn.archive_streams where listed < changes") == 0
	})
}

func (o *outlets) sent() int { return int(o.broker.Client.XLen(o.t.Context(), "default").Val()) }

func (o *outlets) archived() int {
	return o.count("select coalesce(sum(events), 0) from posthorn.archive_segments where written_at is not null")
}

// content has each event of a log with all that is of it: an imported one as its origin has it.
const content = `
	select concat_ws(' ', id, published_at, stream, type, key, tags, payload, metadata)
	from (
		select coalesce(origin->>'id', e.id::text) as id, coalesce((origin->>'published_at')::timestamptz, e.created_at) as published_at,
			s.name as stream, e.type, e.key, e.tags, e.payload, e.metadata::jsonb - 'posthorn_origin' as metadata
		from posthorn.events e
		join posthorn.streams s on s.id = e.stream_id
		cross join lateral (select e.metadata->'posthorn_origin') o (origin)) e
	order by id::bigint`

// readBy imports the broker and restores the archive with a program, and compares the events with those of the log.
func (o *outlets) readBy(v version) {
	o.t.Helper()
	run(o.t, o.command(v.posthorn, "archive", "verify", o.archive))
	restored := newWorld(o.t)
	run(o.t, restored.command(v.posthorn, "migrate"))
	run(o.t, restored.command(v.posthorn, "archive", "restore", o.archive))
	o.compare(v.name+" archive restore", restored)

	importing := newWorld(o.t)
	run(o.t, importing.command(v.posthorn, "migrate"))
	importer := testchild.StartProgram(o.t, importing.command(v.posthorn, "import", o.broker.URL()))
	events := o.count("select count(*) from posthorn.events")
	await.True(o.t, "the "+v.name+" import has read all", func() bool { return importing.count("select count(*) from posthorn.events") == events })
	end(o.t, importer)
	o.compare(v.name+" import", importing)
}

func (w *world) compare(program string, other *world) {
	w.t.Helper()
	want, got := w.texts(content), other.texts(content)
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			w.t.Errorf("%s: %q is missing", program, want[i])
		case i >= len(want):
			w.t.Errorf("%s: %q is not in the log", program, got[i])
		case got[i] != want[i]:
			w.t.Errorf("%s: %q became %q", program, want[i], got[i])
		default:
			continue
		}
		return
	}
}
