package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// locate finds where the stream ends, makes it if it is not there, and returns
// those events of a batch that it does not have yet.
func (w *writer) locate(ctx context.Context, events []*posthorn.Event) ([]*posthorn.Event, error) {
	info, err := w.adopt(ctx)
	if err != nil {
		return events, err
	}
	end := info.State.LastSeq
	if info.State.Msgs > 0 {
		last, err := w.sink.lastMessage(ctx, w.name)
		switch {
		case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
			return events, fmt.Errorf("look at its last message: %w", err)
		case err == nil:
			if events, err = w.after(ctx, last, events); err != nil {
				return events, err
			}
			// What came since the stream was looked at may be by another relay.
			end = max(end, last.Sequence)
		}
	}
	w.last, w.known = end, true
	return events, nil
}

// after returns the events that a stream with this last message does not have.
// Mostly it ends with none of them, or with those that it has in their order. A
// relay that died may have left more of them in the last messages, if others have
// published to the stream: none of those may be lost, and none is written twice.
func (w *writer) after(ctx context.Context, last *message, events []*posthorn.Event) ([]*posthorn.Event, error) {
	id, err := w.eventOf(last.Sequence, last.Header)
	if err != nil {
		return events, err
	}
	position := -1
	for i, e := range events {
		if relay.NewEntry(w.source, e).ID == id {
			position = i
		}
	}
	if position <= 0 {
		return events[position+1:], nil
	}
	missing := map[string]bool{}
	for _, e := range events[:position+1] {
		missing[relay.NewEntry(w.source, e).ID] = true
	}
	stored := map[string]bool{}
	err = w.lookBack(ctx, last.Sequence, len(events)+w.sink.config.MaxPending, func(m *message) error {
		id, err := w.eventOf(m.Sequence, m.Header)
		stored[id] = true
		delete(missing, id)
		return err
	}, func() bool { return len(missing) == 0 })
	if err != nil {
		return events, err
	}
	var rest []*posthorn.Event
	for _, e := range events {
		if !stored[relay.NewEntry(w.source, e).ID] {
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// eventOf is the id of the event of a message, which must be one of ours.
func (w *writer) eventOf(sequence uint64, h natsgo.Header) (string, error) {
	e, err := entry(h, nil)
	switch {
	case err != nil:
		return "", refused(fmt.Sprintf("message %d of JetStream stream %s was published by something else: %v", sequence, w.name, err),
			fmt.Sprintf("Stop what publishes to %s, then remove it: nats stream rmm '%s' %d", w.all, w.name, sequence))
	case e.Source != w.source:
		return "", refused(fmt.Sprintf("message %d of JetStream stream %s is of another log: %s", sequence, w.name, e.Source), otherPrefix)
	}
	return e.ID, nil
}

const otherPrefix = "Let this log write under a prefix of its own: nats://…?prefix=NAME."

// adopt makes sure that the stream is there, is of this log, and has the replicas
// and bounds asked for.
func (w *writer) adopt(ctx context.Context) (*jetstream.StreamInfo, error) {
	config := jetstream.StreamConfig{
		Name: w.name, Description: w.source, Subjects: []string{w.all},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		Replicas: w.sink.config.Replicas, MaxBytes: w.sink.config.MaxBytes, MaxAge: w.sink.config.MaxAge,
	}
	ctx, cancel := context.WithTimeout(ctx, w.sink.config.Timeout) // who has no leader does not answer
	defer cancel()
	stream, err := w.sink.js.Stream(ctx, w.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = w.sink.js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else made it
			stream, err = w.sink.js.Stream(ctx, w.name)
		}
	}
	if err != nil {
		return nil, w.explain(err)
	}
	info := stream.CachedInfo()
	if info.Config.Description != w.source {
		return nil, refused(fmt.Sprintf("JetStream stream %s is not of this log: its description is %q", w.name, info.Config.Description), otherPrefix)
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

// explain says what to do about an error of JetStream, where that is known.
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
		return &hinted{err, err.Error(), fmt.Sprintf("Another stream of JetStream has %s already. %s", w.all, otherPrefix)}
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, natsgo.ErrNoResponders) {
		return &hinted{err, err.Error(), "Start the nats-server with JetStream: nats-server -js."}
	}
	return err
}

// message is one that was asked for.
type message struct {
	Sequence uint64
	Header   natsgo.Header
}

// lastMessage is the last message of a stream.
func (s *Sink) lastMessage(ctx context.Context, name string) (*message, error) {
	return s.getMessage(ctx, name, `{"last_by_subj":">"}`)
}

// getMessage asks the leader of a stream for a message. Replicas, which answer too
// where a stream allows direct access, may not have it yet.
func (s *Sink) getMessage(ctx context.Context, name, which string) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	answer, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+name, []byte(which))
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
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
		return nil, errors.New("an answer without a message")
	}
	m := &message{Sequence: got.Message.Sequence}
	if len(got.Message.Header) > 0 {
		m.Header, err = natsgo.DecodeHeadersMsg(got.Message.Header)
	}
	return m, err
}

// window is how many messages are asked for at once, in looking back.
const window = 64

// lookBack looks at the messages of a stream from some sequence backwards, at
// most so many, until enough says so. Those that are not there any more are
// passed over. The leader is asked, message by message, since a consumer may be
// served by a replica that is behind.
func (w *writer) lookBack(ctx context.Context, from uint64, most int, look func(*message) error, enough func() bool) error {
	for ; from > 0 && most > 0 && !enough(); most -= window {
		n := min(window, most, int(min(from, window)))
		messages, errs := make([]*message, n), make([]error, n)
		var asked sync.WaitGroup
		for i := range n {
			asked.Go(func() {
				messages[i], errs[i] = w.sink.getMessage(ctx, w.name, fmt.Sprintf(`{"seq":%d}`, from-uint64(i)))
			})
		}
		asked.Wait()
		for i, m := range messages {
			if errors.Is(errs[i], jetstream.ErrMsgNotFound) {
				continue
			}
			if errs[i] != nil {
				return fmt.Errorf("look back: %w", errs[i])
			}
			if err := look(m); err != nil {
				return err
			}
		}
		from -= uint64(n)
	}
	return nil
}
