package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// run is a part of a stream that is sent without waiting for answers in between.
//
// Each message says at which sequence it expects the stream to end, which is that
// of the one before it. So where one is lost, those behind it are refused: the
// order holds whatever servers die. Nats-Expected-Last-Msg-Id would say the same
// by event, but must not be used on replicated streams: replicas check it when
// they store a message, against the last id they remember, which a replica that
// was caught up by others does not have. It would refuse what the others store.
type run struct {
	id   uint64
	base uint64 // the sequence that the stream ends with

	mu       sync.Mutex
	slots    chan struct{}
	answers  []answered // of each message sent
	open     int        // how many have none
	bytes    int        // of those that have none
	failed   bool       // one was refused: send no more
	aborted  error
	finished bool
	wake     chan struct{}
}

type answered struct {
	ack
	bytes int
	known bool
}

// How much of a stream may be on its way: servers have buffers.
const pendingBytes = 16 << 20

var (
	errDisconnected   = errors.New("not connected to nats")
	errHeaderTooLarge = errors.New("its headers are larger than the 64 kB that a server takes")
)

// answer notes the answer to a message.
func (r *run) answer(i int, a ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished || i < 0 || i >= len(r.answers) || r.answers[i].known {
		return
	}
	known := &r.answers[i]
	known.ack, known.known = a, true
	r.open--
	r.bytes -= known.bytes
	if a.err == nil && !a.duplicate && a.sequence != r.base+uint64(i)+1 {
		known.err = fmt.Errorf("JetStream stored a message at %d that belongs at %d", a.sequence, r.base+uint64(i)+1)
	}
	r.failed = r.failed || known.err != nil
	<-r.slots
	r.rouse()
}

func (r *run) abort(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aborted == nil {
		r.aborted = err
	}
	r.rouse()
}

func (r *run) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// send sends events and waits for the answers, which are in the order of the
// events; those that were not sent have none. The error is of the connection.
func (w *writer) send(ctx context.Context, events []*posthorn.Event) (answers []answered, err error) {
	r := &run{base: w.last, slots: w.sink.slots, wake: make(chan struct{}, 1), answers: make([]answered, 0, len(events))}
	reply := w.sink.acks.add(r)
	defer w.sink.acks.remove(r)
	patience := time.NewTimer(w.sink.config.Timeout)
	defer patience.Stop()
	for i, e := range events {
		m := w.message(e)
		m.Header[expectedLast] = []string{strconv.FormatUint(w.last+uint64(i), 10)}
		m.Reply = reply + strconv.Itoa(i)
		size := m.Size()
		if err = r.room(ctx, size, patience, w.sink.config.Timeout); err != nil {
			break
		}
		if err = take(ctx, r.slots); err != nil {
			break
		}
		if !r.sending(size) {
			<-r.slots
			break
		}
		if err := w.publish(m); err != nil {
			r.answer(i, ack{err: err})
			break
		}
	}
	waitErr := r.rest(ctx, patience, w.sink.config.Timeout)
	if err == nil {
		err = waitErr
	}
	return r.finish(), err
}

// publish hands a message to the connection.
func (w *writer) publish(m *natsgo.Msg) error {
	if headerSize(m.Header) > math.MaxUint16 {
		return errHeaderTooLarge
	}
	err := w.sink.conn.PublishMsg(m)
	var broken net.Error
	if errors.As(err, &broken) {
		// Half a message may have been sent: nothing can follow on this connection.
		_ = w.sink.conn.ForceReconnect()
	}
	return err
}

func headerSize(h natsgo.Header) int {
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, value := range values {
			size += len(name) + len(": \r\n") + len(value)
		}
	}
	return size
}

// message is an event as it is published.
func (w *writer) message(e *posthorn.Event) *natsgo.Msg {
	entry := relay.NewEntry(w.source, e)
	return &natsgo.Msg{Subject: w.subject + typeTokens(e.Type), Header: header(&entry), Data: entry.Data}
}

// sending notes that a message is sent, unless none may be any more.
func (r *run) sending(size int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed || r.aborted != nil {
		return false
	}
	r.answers = append(r.answers, answered{bytes: size})
	r.open++
	r.bytes += size
	return true
}

// room waits until a message of that size may be sent.
func (r *run) room(ctx context.Context, size int, patience *time.Timer, timeout time.Duration) error {
	return r.wait(ctx, patience, timeout, func() bool {
		return r.failed || r.open == 0 || r.bytes+size <= pendingBytes && 2*r.open < cap(r.slots)
	})
}

// rest waits for the answers that are due.
func (r *run) rest(ctx context.Context, patience *time.Timer, timeout time.Duration) error {
	return r.wait(ctx, patience, timeout, func() bool { return r.open == 0 })
}

// wait waits until it is good, as long as answers come.
func (r *run) wait(ctx context.Context, patience *time.Timer, timeout time.Duration, good func() bool) error {
	for first := true; ; first = false {
		r.mu.Lock()
		ok, aborted := good(), r.aborted
		r.mu.Unlock()
		if ok {
			return nil
		}
		if aborted != nil {
			return aborted
		}
		if first {
			patience.Reset(timeout)
		}
		select {
		case <-r.wake:
			patience.Reset(timeout)
		case <-patience.C:
			return fmt.Errorf("%w of JetStream within %v", errNoAnswer, timeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish gives back what unanswered messages took, and returns all answers.
func (r *run) finish() []answered {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = true
	for ; r.open > 0; r.open-- {
		<-r.slots
	}
	return r.answers
}
