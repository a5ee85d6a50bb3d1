package redis

import (
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// A page of a stream has the whole entries, so pages are small, and few entries are read
// at once.
const (
	pageEntries   = 64
	entriesAtOnce = 512
	pagesBack     = 32
)

// tail is the search for the events of a batch, and for other events under their ids, at
// the end of a stream. It reads back page by page, to the first page that has only earlier
// events, also when it has found all: later batches rely on the highest id, and the last page
// may be one of events that were committed late. Of the pages that have later events and none
// of these, it reads pagesBack.
//
// That the stream has an event does not mean that it has the events before that one, too.
// A relay reads an event while the transaction of an earlier one is still open, and writes
// it. Then Postgres crashes, and the relay begins again where it was before: now it reads
// both events at once.
type tail struct {
	missing map[string]*posthorn.Event // by id: not found so far
	stored  map[int64]bool
	refused map[int64]error // the stream has another event with the id
	lowest  int64           // id of the events
	highest int64           // id of the entries
	known   int64           // the highest id of an earlier search: the entries are there, if not at the end
	from    string          // where the next page begins
	page    int             // number of entries of a page
	left    int             // number of pages without an event of the batch that may be read
	over    bool
}

// newTail returns the search for events in a stream that ends with the event last.
func newTail(events []*posthorn.Event, last string, known int64) *tail {
	t := &tail{
		missing: map[string]*posthorn.Event{}, stored: map[int64]bool{}, refused: map[int64]error{},
		lowest: relay.LowestID(events), from: "+", page: min(len(events)+10, pageEntries), // some entries may be of other programs
		known: known, left: pagesBack,
	}
	for _, e := range events {
		t.missing[idOf(e)] = e
	}
	if id, _ := strconv.ParseInt(last, 10, 64); id >= t.lowest { // the events may stand before those of later batches
		t.page = pageEntries
	}
	return t
}

// read searches a page for events of a source.
func (t *tail) read(source string, page []redis.XMessage) {
	before, later := len(t.missing), false
	for _, entry := range page {
		t.from = "(" + entry.ID
		id, _ := entry.Values[relay.ID].(string)
		if entry.Values[relay.SourceName] != source {
			continue
		}
		n, _ := strconv.ParseInt(id, 10, 64)
		t.highest, later = max(t.highest, n), later || n >= t.lowest
		e := t.missing[id]
		if e == nil {
			continue
		}
		delete(t.missing, id)
		if at, _ := entry.Values[relay.Time].(string); relay.SameTime(e, at) {
			t.stored[e.ID] = true
		} else {
			t.refused[e.ID] = relay.OtherEvent(e, id, at)
		}
	}
	found := len(t.missing) < before
	if !found {
		t.left--
	}
	passed := t.known < t.lowest || t.highest >= t.known
	t.over = len(page) < t.page || t.left == 0 || passed && !found && !later
}

// compare finds the events that the streams have already.
func (w *nodeWriter) compare(batches []*streamBatch) {
	for {
		var pages []chunk
		largest := 1
		for _, b := range batches {
			if b.open() && b.tail != nil && !b.tail.over {
				t := b.tail
				cmd := redis.NewXMessageSliceCmd(w.ctx, "xrevrange", b.key, t.from, "-", "count", t.page)
				pages = append(pages, chunk{batch: b, cmd: cmd})
				largest = max(largest, t.page)
			}
		}
		if len(pages) == 0 || contextErr(w.ctx) != nil {
			break
		}
		w.exchangeAll(pages, entriesAtOnce/largest)
	}
	var confirmations []chunk
	for _, b := range batches {
		t := b.tail
		b.tail = nil
		if !b.open() || t == nil {
			continue
		}
		if !t.over { // the context has ended
			b.known = false
			continue
		}
		b.apply(t)
		switch {
		case w.replicas == 0:
			b.replicated = b.written
		case len(b.events) > 0 && b.written == len(b.events):
			confirmations = append(confirmations, chunk{batch: b, upto: b.written, cmd: w.call(b, b.last, nil)})
		}
	}
	w.exchangeAll(confirmations, exchangeChunks)
}

// apply puts the events that the stream has before the others, and leaves those out that
// are refused.
func (b *streamBatch) apply(t *tail) {
	if b.before == 0 {
		b.before = t.highest
	}
	var stored, rest []*posthorn.Event
	for _, e := range b.events {
		switch {
		case t.stored[e.ID]:
			stored = append(stored, e)
		case t.refused[e.ID] != nil:
			b.refuse(e.ID, t.refused[e.ID])
		default:
			rest = append(rest, e)
		}
	}
	b.events, b.written = slices.Concat(stored, rest), len(stored)
}
