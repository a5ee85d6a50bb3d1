package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// search is the search for the events of a batch, and for other events under their ids,
// at the ends of the partitions of a topic. In each partition it goes back to records that
// have earlier events only, also when it has found all: later batches rely on the highest
// id, and the last records may be those of events that were committed late.
type search struct {
	source  string
	missing map[string]*posthorn.Event // by id: not found so far
	stored  map[int64]bool
	refused map[int64]error // the topic has another event with the id
	lowest  int64           // id of the events
	highest int64           // id of the records
	known   int64           // the highest id of an earlier search: the records are there, if not at the end
	last    int64           // the highest id among the last events of the partitions
	other   string          // the source of another log with which a partition ends
	left    int             // number of records that may be read in this partition
	earlier int             // records in a row that have earlier events, in this partition
	first   bool            // the next event is the last one of the partition
}

// enoughEarlier is how many records in a row end the search in a partition: events that
// were committed late stand behind later ones.
const enoughEarlier = 16

// furthestBack is how many records behind the events of a batch are read in a partition.
const furthestBack = 2000

// visit compares a record, and reports whether the search goes on in the partition. Records
// of other programs are passed over.
func (s *search) visit(r *kgo.Record) bool {
	s.left--
	found, err := entry(r)
	if err != nil {
		return s.left > 0
	}
	id, _ := strconv.ParseInt(found.ID, 10, 64)
	if s.first {
		s.first = false
		if found.Source != s.source {
			s.other = found.Source
			return false
		}
		s.last = max(s.last, id)
	}
	if found.Source != s.source {
		return s.left > 0
	}
	s.highest = max(s.highest, id)
	if id < s.lowest {
		s.earlier++
		passed := s.known < s.lowest || s.highest >= s.known
		return (!passed || s.earlier < enoughEarlier) && s.left > 0
	}
	s.earlier = 0
	if e := s.missing[found.ID]; e != nil {
		delete(s.missing, found.ID)
		if relay.SameTime(e, found.Time) {
			s.stored[id] = true
		} else {
			s.refused[id] = relay.OtherEvent(e, found.ID, found.Time)
		}
	}
	return s.left > 0
}

// compare takes those events out of a batch that the topic has, and refuses those for good
// under whose ids it has others.
func (l *life) compare(ctx context.Context, batch posthorn.SinkBatch, b *streamBatch) error {
	s := &search{
		source: l.source, missing: map[string]*posthorn.Event{}, stored: map[int64]bool{}, refused: map[int64]error{},
		lowest: relay.LowestID(b.events), known: b.topic.highest,
	}
	for _, e := range b.events {
		s.missing[strconv.FormatInt(e.ID, 10)] = e
	}
	for _, p := range b.topic.partitions {
		s.left, s.earlier, s.first = len(b.events)+furthestBack, 0, true
		if err := l.back(ctx, b.topic, p, p.end, s.visit); err != nil {
			return err
		}
		if s.other != "" {
			return refused(fmt.Sprintf("topic %s has events of another log: %s", b.name, s.other), otherPrefix)
		}
	}
	if !s.stored[s.last] && s.refused[s.last] == nil {
		if err := relay.CheckLast(ctx, batch.LastID, strconv.FormatInt(s.last, 10), b.events); err != nil {
			return err
		}
	}
	b.topic.compared, b.topic.lead, b.topic.highest = true, batch.Lead, max(b.topic.highest, s.highest)
	for id, err := range s.refused {
		b.refuse(id, err)
	}
	b.events = slices.DeleteFunc(b.events, func(e *posthorn.Event) bool { return s.stored[e.ID] || s.refused[e.ID] != nil })
	return nil
}

const otherPrefix = "Use another prefix for this log: kafka://…?prefix=NAME."
