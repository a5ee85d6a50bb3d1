package nats

import (
	"strconv"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// search is the search for the events of a batch, and for other events under their ids,
// at the end of a stream. It goes back to messages that have earlier events only, also when
// it has found all: later batches rely on the highest id, and the last messages may be those
// of events that were committed late.
type search struct {
	source   string
	notFound map[string]*posthorn.Event // by id
	stored   map[int64]bool
	refused  map[int64]error // the stream has another event with the id
	lowest   int64           // id of the events
	highest  int64           // id of the messages
	known    int64           // the highest id of an earlier search: the messages are there, if not at the end
	earlier  int             // messages in a row that have earlier events
}

func newSearch(source string, events []*posthorn.Event, known int64) *search {
	s := &search{
		source: source, notFound: map[string]*posthorn.Event{}, stored: map[int64]bool{}, refused: map[int64]error{},
		lowest: relay.LowestID(events), known: known,
	}
	for _, e := range events {
		s.notFound[strconv.FormatInt(e.ID, 10)] = e
	}
	return s
}

// visit compares a message. Those of other programs are passed over.
func (s *search) visit(m *message) {
	found, err := entry(m.Header, nil)
	if err != nil || found.Source != s.source {
		return
	}
	id, _ := strconv.ParseInt(found.ID, 10, 64)
	s.highest = max(s.highest, id)
	if id < s.lowest {
		s.earlier++
		return
	}
	s.earlier = 0
	e := s.notFound[found.ID]
	if e == nil {
		return
	}
	delete(s.notFound, found.ID)
	if relay.SameTime(e, found.Time) {
		s.stored[id] = true
	} else {
		s.refused[id] = posthorn.Permanent(relay.OtherEvent(e, found.ID, found.Time))
	}
}

// enoughEarlier is how many messages in a row end a search: events that were committed
// late stand behind later ones.
const enoughEarlier = 16

func (s *search) done() bool {
	passed := s.known < s.lowest || s.highest >= s.known
	return passed && s.earlier >= enoughEarlier
}
