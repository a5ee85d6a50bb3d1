package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// locate reads the last sequence of the stream, which it creates if necessary. It
// returns the events that the stream does not have yet.
func (w *writer) locate(ctx context.Context, events []*posthorn.Event) ([]*posthorn.Event, error) {
	info, err := w.ensureStream(ctx)
	if err != nil {
		return events, err
	}
	lastSequence := info.State.LastSeq
	var highest int64
	if info.State.Msgs > 0 {
		last, err := w.sink.lastMessage(ctx, w.name, info.State)
		switch {
		case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
			return events, fmt.Errorf("read the last message: %w", err)
		case err == nil:
			if events, highest, err = w.missing(ctx, last, events); err != nil {
				return events, err
			}
			// Another relay may have published since the info was read.
			lastSequence = max(lastSequence, last.Sequence)
		}
	}
	if !w.known {
		w.before = highest
	}
	w.last, w.known = lastSequence, true
	return events, nil
}

// missing returns the events that a stream with this last message does not have, and the
// highest id of those that it has at its end. It refuses events for good whose ids other
// events have.
//
// Usually the stream ends with an event before these. After a crash it has some of them:
// not always the first ones, since JetStream may refuse some events of a batch and store
// later ones, if another program publishes in between.
func (w *writer) missing(ctx context.Context, last *message, events []*posthorn.Event) ([]*posthorn.Event, int64, error) {
	id, err := w.eventOf(last.Sequence, last.Header)
	if err != nil {
		return events, 0, err
	}
	s := newSearch(w.source, events, w.before)
	if s.notFound[id] == nil {
		if err := relay.CheckLast(ctx, w.lastID, id, events); err != nil {
			return events, 0, err
		}
	}
	if err := w.scanBackwards(ctx, last.Sequence, len(events)+w.sink.config.MaxPending, s.visit, s.done); err != nil {
		return events, 0, err
	}
	maps.Copy(w.result.permanent, s.refused)
	return slices.DeleteFunc(slices.Clone(events), func(e *posthorn.Event) bool {
		return s.stored[e.ID] || s.refused[e.ID] != nil
	}), s.highest, nil
}

// eventOf returns the id of the event of a message. It returns an error if another
// program or another log published the message.
func (w *writer) eventOf(sequence uint64, h natsgo.Header) (string, error) {
	e, err := entry(h, nil)
	switch {
	case err != nil:
		return "", refused(fmt.Sprintf("another program published message %d of JetStream stream %s: %v", sequence, w.name, err),
			fmt.Sprintf("Stop the program that publishes to %s, then remove the message: nats stream rmm '%s' %d", w.all, w.name, sequence))
	case e.Source != w.source:
		return "", refused(fmt.Sprintf("message %d of JetStream stream %s belongs to another log: %s", sequence, w.name, e.Source), otherPrefix)
	}
	return e.ID, nil
}

const otherPrefix = "Use another prefix for this log: nats://…?prefix=NAME."

// ensureStream creates the stream if it does not exist, checks that it belongs to this
// log, and updates its replicas and limits.
func (w *writer) ensureStream(ctx context.Context) (*jetstream.StreamInfo, error) {
	config := jetstream.StreamConfig{
		Name: w.name, Description: w.source, Subjects: []string{w.all},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		Replicas: w.sink.config.Replicas, MaxBytes: w.sink.config.MaxBytes, MaxAge: w.sink.config.MaxAge,
	}
	ctx, cancel := context.WithTimeout(ctx, w.sink.config.Timeout) // a stream without a leader does not reply
	defer cancel()
	stream, err := w.sink.js.Stream(ctx, w.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = w.sink.js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another relay created it first
			stream, err = w.sink.js.Stream(ctx, w.name)
		}
	}
	if err != nil {
		return nil, w.explain(err)
	}
	info := stream.CachedInfo()
	if info.Config.Description != w.source {
		return nil, refused(fmt.Sprintf("JetStream stream %s does not belong to this log: its description is %q", w.name, info.Config.Description), otherPrefix)
	}
	wanted := info.Config
	wanted.Replicas = max(wanted.Replicas, config.Replicas)
	if config.MaxBytes > 0 {
		wanted.MaxBytes = config.MaxBytes
	}
	if config.MaxAge > 0 {
		wanted.MaxAge = config.MaxAge
		wanted.Duplicates = min(wanted.Duplicates, wanted.MaxAge)
	}
	if wanted.Replicas == info.Config.Replicas && wanted.MaxBytes == info.Config.MaxBytes && wanted.MaxAge == info.Config.MaxAge {
		return info, nil
	}
	if stream, err = w.sink.js.UpdateStream(ctx, wanted); err != nil {
		return nil, fmt.Errorf("update JetStream stream %s: %w", w.name, w.explain(err))
	}
	return stream.CachedInfo(), nil
}

// explain adds a hint to an error of JetStream.
func (w *writer) explain(err error) error {
	const (
		codeReplicasNotClustered jetstream.ErrorCode = 10074
		codeNoPeers              jetstream.ErrorCode = 10005
		codeSubjectsOverlap      jetstream.ErrorCode = 10065
	)
	switch code(err) {
	case codeReplicasNotClustered, codeNoPeers:
		return &hinted{err, err.Error(), fmt.Sprintf("%d replicas need a cluster of that many servers with JetStream: ask for fewer with replicas=1.", w.sink.config.Replicas)}
	case codeSubjectsOverlap:
		return &hinted{err, err.Error(), fmt.Sprintf("Another JetStream stream has the subjects %s. %s", w.all, otherPrefix)}
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, natsgo.ErrNoResponders) {
		return &hinted{err, err.Error(), "Start the nats-server with JetStream: nats-server -js."}
	}
	return err
}

// message is a stored message.
type message struct {
	Sequence uint64
	Header   natsgo.Header
	Data     []byte
}

// lastMessage reads the last message of a stream. If the last one was deleted, JetStream
// finds none, and those before it are read.
func (s *Sink) lastMessage(ctx context.Context, name string, state jetstream.StreamState) (*message, error) {
	last, err := s.getMessage(ctx, name, `{"last_by_subj":">"}`)
	for at := state.LastSeq; errors.Is(err, jetstream.ErrMsgNotFound) && at >= state.FirstSeq && at > 0; {
		n := int(min(at-state.FirstSeq+1, maxRequests))
		found, failure := s.getMessages(ctx, name, at, n)
		if failure != nil {
			return nil, failure
		}
		if len(found) > 0 {
			return found[0], nil
		}
		at -= uint64(n)
	}
	return last, err
}

// getMessage reads a message from the leader of a stream. Direct access would also read
// from replicas, which may not have the message yet.
func (s *Sink) getMessage(ctx context.Context, name, request string) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	answer, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+name, []byte(request))
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return nil, err
	}
	if got.Error != nil {
		if got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, jetstream.ErrMsgNotFound
		}
		return nil, got.Error
	}
	if got.Message == nil {
		return nil, errors.New("the reply has no message")
	}
	m := &message{Sequence: got.Message.Sequence, Data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		m.Header, err = natsgo.DecodeHeadersMsg(got.Message.Header)
	}
	return m, err
}

// maxRequests is the number of messages that scanBackwards requests concurrently.
const maxRequests = 64

// scanBackwards visits the messages of a stream from a sequence backwards, at most
// limit of them, until done returns true. It skips deleted messages. It requests each
// message from the leader, since a consumer may run on a replica that is behind.
func (w *writer) scanBackwards(ctx context.Context, from uint64, limit int, visit func(*message), done func() bool) error {
	few := enoughEarlier // mostly enough
	for from > 0 && limit > 0 && !done() {
		n := min(few, limit, int(min(from, maxRequests)))
		messages, err := w.sink.getMessages(ctx, w.name, from, n)
		if err != nil {
			return err
		}
		for _, m := range messages {
			visit(m)
		}
		from, limit = from-uint64(n), limit-n
		few = min(2*few, maxRequests)
	}
	return nil
}

// getMessages reads n messages from a sequence backwards, at once. It leaves out deleted
// ones.
func (s *Sink) getMessages(ctx context.Context, name string, from uint64, n int) ([]*message, error) {
	messages, errs := make([]*message, n), make([]error, n)
	var requests sync.WaitGroup
	for i := range n {
		requests.Go(func() {
			messages[i], errs[i] = s.getMessage(ctx, name, fmt.Sprintf(`{"seq":%d}`, from-uint64(i)))
		})
	}
	requests.Wait()
	var found []*message
	for i, m := range messages {
		if errors.Is(errs[i], jetstream.ErrMsgNotFound) {
			continue
		}
		if errs[i] != nil {
			return nil, fmt.Errorf("read message %d: %w", from-uint64(i), errs[i])
		}
		found = append(found, m)
	}
	return found, nil
}
