package guarantee

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
)

const (
	elsewhere = "01234567-89ab-cdef-0123-456789abcdef"
	importerA = "importer-a-1-00000001"
	importerB = "importer-b-2-00000002"
)

// imported returns events of another log.
func imported(ids ...int64) (events []pg.Event) {
	for _, id := range ids {
		events = append(events, pg.Event{ID: id, Type: "e", Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`), PublishedAt: time.Now()})
	}
	return events
}

func importPart(from, passed string, ids ...int64) []pg.ImportPart {
	return []pg.ImportPart{{Stream: "orders", From: from, Passed: passed, Log: elsewhere, Namespace: "shop", Events: imported(ids...)}}
}

func sequence(first, last int64) (ids []int64) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

// A process that has lost the lead of an import publishes nothing. Nor does a process
// that does not know the position of the import.
func TestLateImporterIsFenced(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	db := ph.Pool()
	i, err := pg.DefineImport(t.Context(), db, "default", "in", "redis://r", "redis", nil)
	if err != nil {
		t.Fatal(err)
	}
	lead := func(owner string, epoch int64) pg.ImportLead {
		t.Helper()
		lead, err := pg.LeadImport(t.Context(), db, i, owner, 10*time.Second, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return lead
	}
	a := lead(importerA, 0)
	if n, err := pg.ImportEvents(t.Context(), db, a, importPart("", "2", 1, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if other := lead(importerB, 0); other.Epoch != 0 || other.Leader != importerA {
		t.Fatalf("two lead: %+v", other)
	}
	if again := lead(importerA, a.Epoch); again.Epoch != a.Epoch {
		t.Fatalf("renewed it is epoch %d, was %d", again.Epoch, a.Epoch)
	}
	posthorntest.Advance(t, ph, time.Minute)
	b := lead(importerB, 0)
	if b.Epoch <= a.Epoch {
		t.Fatalf("epoch %d after %d", b.Epoch, a.Epoch)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = pg.ImportEvents(t.Context(), db, a, importPart("2", "3", 3))
	refused("a late importer publishes", err)
	_, err = pg.LeadImport(t.Context(), db, i, importerA, time.Minute, a.Epoch)
	refused("it renews", err)
	refused("it notes an error", pg.NoteImportError(t.Context(), db, a, "", "late"))
	refused("it notes the lag", pg.NoteImportLag(t.Context(), db, a, nil))
	if err := pg.ResignImport(t.Context(), db, a); err != nil {
		t.Fatal(err)
	}
	_, err = pg.ImportEvents(t.Context(), db, b, importPart("", "3", 3))
	refused("a batch from elsewhere", err)
	if n, err := pg.ImportEvents(t.Context(), db, b, importPart("2", "3", 3)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := pg.DefineImport(t.Context(), db, "default", "in", "redis://r", "redis", []string{"orders"}); err != nil {
		t.Fatal(err)
	}
	_, err = pg.ImportEvents(t.Context(), db, b, importPart("3", "4", 4))
	refused("an importer whose streams were changed", err)
}

// The id in its own log identifies an imported event: for a day, and for the last
// 200,000 events of a stream with more. An id that comes late is no repeat.
func TestImportKnowsRepeats(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	db := ph.Pool()
	i, err := pg.DefineImport(t.Context(), db, "default", "in", "redis://r", "redis", nil)
	if err != nil {
		t.Fatal(err)
	}
	lead, err := pg.LeadImport(t.Context(), db, i, importerA, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	takes := func(what string, want int64, change func(p *pg.ImportPart), ids ...int64) {
		t.Helper()
		from := ""
		if at > 0 {
			from = fmt.Sprint(at)
		}
		at++
		parts := importPart(from, fmt.Sprint(at), ids...)
		change(&parts[0])
		if n, err := pg.ImportEvents(t.Context(), db, lead, parts); n != want || err != nil {
			t.Errorf("%s: %d are new, want %d; %v", what, n, want, err)
		}
	}
	same := func(*pg.ImportPart) {}
	another := func(p *pg.ImportPart) { p.Log = "21234567-89ab-cdef-0123-456789abcdef" }
	takes("more than stay beside the position", 200, same, sequence(10_001, 10_200)...)
	takes("the same again", 0, same, sequence(10_001, 10_200)...)
	takes("some of another log", 3, another, 1, 2, 20_000)
	takes("a late one, whose id the first log had, too", 1, another, 5)
	takes("an id that the first log had", 1, another, 10_005)
	takes("even ones", 150, same, evens(2, 300)...)
	takes("the same again", 0, same, evens(2, 300)...)
	takes("late ones among repeats", 3, same, 1, 2, 3, 3, 5, 4, 1)
	takes("a large batch", 1000, same, sequence(301, 1300)...)
	takes("across batches", 2, same, 299, 300, 301, 1300, 1301, 1301)
	takes("no event", 0, same)
	takes("another log", 2, func(p *pg.ImportPart) { p.Log = "11234567-89ab-cdef-0123-456789abcdef" }, 1, 2)
	takes("and its repeats", 0, func(p *pg.ImportPart) { p.Log = "11234567-89ab-cdef-0123-456789abcdef" }, 2, 1)
	takes("a large batch of the first", 500, same, sequence(1, 500)...)
	posthorntest.Advance(t, ph, 25*time.Hour)
	if _, err := db.Exec(t.Context(), "select posthorn.tend()"); err != nil {
		t.Fatal(err)
	}
	takes("after a day", 500, same, sequence(1, 500)...)
	if _, err := db.Exec(t.Context(), "update posthorn.import_streams set imported = imported + 200000"); err != nil {
		t.Fatal(err)
	}
	takes("many more", 500, same, sequence(1001, 1500)...)
	takes("before the last 200,000", 500, same, sequence(1, 500)...)
	takes("within them", 0, same, sequence(1001, 1500)...)
}

func evens(first, last int64) (ids []int64) {
	for id := first; id <= last; id += 2 {
		ids = append(ids, id)
	}
	return ids
}

// A publisher cannot publish an event that looks imported.
func TestOriginCannotBeForged(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	forged := `'{"posthorn_origin":{"log":"` + elsewhere + `","namespace":"shop","stream":"patients","id":7}}'`
	for _, sql := range []string{
		"select posthorn.publish('default', 'a', metadata => " + forged + ")",
		"select posthorn.publish('default', 'a', stream => 's', tags => '{t}', metadata => " + forged + ")",
		"select posthorn.publish('default', 'a', deliver_at => now() + interval '1 hour', metadata => " + forged + ")",
		"select posthorn.publish_batch('default', '{a}', array['{}']::json[], metadata => array[" + forged + "]::json[])",
		"select posthorn.publish_many('default', jsonb_build_array(jsonb_build_object('type', 'a', 'metadata', " + forged + "::jsonb)))",
		"select posthorn.append_event_log('default', 'a', '{}', null, null, " + forged + ")",
	} {
		_, err := ph.Pool().Exec(t.Context(), sql)
		if err == nil {
			t.Errorf("%s: was published", sql)
		}
	}
	// Written in another way, it is no origin.
	if _, err := ph.Pool().Exec(t.Context(), "select posthorn.publish('default', 'a', metadata => '{\"a\":1,\"posthorn_origin\":{\"id\":7}}')"); err != nil {
		t.Fatal(err)
	}
	for _, e := range posthorntest.Published(t, ph, ">") {
		if origin, imported := e.Origin(); imported {
			t.Errorf("%s passes for imported: %+v", e.Metadata, origin)
		}
	}
}
