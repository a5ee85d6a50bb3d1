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

// pipeline sends events of a stream without waiting for each acknowledgement.
//
// Each message names the expected last sequence of the stream, which is that of the
// message before it. If a message is lost, JetStream refuses all messages after it, so
// the order holds, whichever servers fail. The first message is acknowledged before
// the second is sent: if another program had published a single message to the stream,
// JetStream would refuse the first message, but store the second.
//
// The header Nats-Expected-Last-Msg-Id would name the event itself, but does not work
// on replicated streams. Each replica checks the header against the last id that it
// remembers, and a replica does not remember the ids of messages that it copied from
// other replicas. It would refuse messages that the other replicas store.
type pipeline struct {
	id   uint64
	base uint64 // the last sequence of the stream before the first message

	mu       sync.Mutex
	sem      chan struct{} // acquired once for each message in flight
	messages []sentMessage
	inFlight int  // messages without an acknowledgement
	bytes    int  // size of the messages in flight
	failed   bool // a message was refused: send no more
	aborted  error
	finished bool
	changed  chan struct{} // signals that any of the above has changed
}

// sentMessage is a message that was sent, and its acknowledgement.
type sentMessage struct {
	ack
	bytes int
	acked bool
}

// maxBytesInFlight limits the messages of a stream in flight, since servers buffer
// them.
const maxBytesInFlight = 16 << 20

var (
	errDisconnected   = errors.New("not connected to nats")
	errHeaderTooLarge = errors.New("the headers of the message are larger than 64 kB, the limit of the server")
)

// acknowledge stores the acknowledgement of the i-th message.
func (p *pipeline) acknowledge(i int, a ack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished || i < 0 || i >= len(p.messages) || p.messages[i].acked {
		return
	}
	m := &p.messages[i]
	m.ack, m.acked = a, true
	p.inFlight--
	p.bytes -= m.bytes
	if a.err == nil && !a.duplicate && a.sequence != p.base+uint64(i)+1 {
		m.err = fmt.Errorf("JetStream stored a message at sequence %d instead of %d", a.sequence, p.base+uint64(i)+1)
	}
	p.failed = p.failed || m.err != nil
	<-p.sem
	p.signal()
}

func (p *pipeline) abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aborted == nil {
		p.aborted = err
	}
	p.signal()
}

func (p *pipeline) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// send sends events and waits for their acknowledgements. The result has the messages
// that were sent, in the order of the events. The error is of the connection.
func (w *writer) send(ctx context.Context, events []*posthorn.Event) (messages []sentMessage, err error) {
	p := &pipeline{base: w.last, sem: w.sink.messageSem, changed: make(chan struct{}, 1), messages: make([]sentMessage, 0, len(events))}
	reply := w.sink.acks.add(p)
	defer w.sink.acks.remove(p)
	timer := time.NewTimer(w.sink.config.Timeout)
	defer timer.Stop()
	m, h := new(natsgo.Msg), newHeaders()
	for i, e := range events {
		entry := relay.NewEntry(w.source, e)
		m.Subject = w.subject + typeTokens(e.Type)
		m.Reply = reply + strconv.Itoa(i)
		m.Header, m.Data = h.of(&entry, w.last+uint64(i)), entry.Data
		size := headerSize(m.Header) + len(m.Data)
		if i == 1 { // the acknowledgement of the first message confirms the last sequence
			err = p.waitForAll(ctx, timer, w.sink.config.Timeout)
		} else {
			err = p.waitForRoom(ctx, size, timer, w.sink.config.Timeout)
		}
		if err != nil {
			break
		}
		if err = acquire(ctx, p.sem); err != nil {
			break
		}
		if !p.add(size) {
			<-p.sem
			break
		}
		if err := w.publish(m); err != nil {
			p.acknowledge(i, ack{err: err})
			break
		}
	}
	waitErr := p.waitForAll(ctx, timer, w.sink.config.Timeout)
	if err == nil {
		err = waitErr
	}
	return p.finish(), err
}

// publish passes a message to the connection.
func (w *writer) publish(m *natsgo.Msg) error {
	if headerSize(m.Header) > math.MaxUint16 {
		return errHeaderTooLarge
	}
	err := w.sink.conn.PublishMsg(m)
	var broken net.Error
	if errors.As(err, &broken) {
		// The connection may have sent half a message, so it cannot send another one.
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

// add adds a message that is about to be sent. It returns false if the pipeline has
// failed or was aborted, and the message must not be sent.
func (p *pipeline) add(size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed || p.aborted != nil {
		return false
	}
	p.messages = append(p.messages, sentMessage{bytes: size})
	p.inFlight++
	p.bytes += size
	return true
}

// waitForRoom waits until a message of a size can be sent.
func (p *pipeline) waitForRoom(ctx context.Context, size int, timer *time.Timer, timeout time.Duration) error {
	return p.wait(ctx, timer, timeout, func() bool {
		return p.failed || p.inFlight == 0 || p.bytes+size <= maxBytesInFlight && 2*p.inFlight < cap(p.sem)
	})
}

// waitForAll waits for the acknowledgements of all messages in flight.
func (p *pipeline) waitForAll(ctx context.Context, timer *time.Timer, timeout time.Duration) error {
	return p.wait(ctx, timer, timeout, func() bool { return p.inFlight == 0 })
}

// wait waits until the condition holds. It returns an error if no acknowledgement
// arrives within the timeout.
func (p *pipeline) wait(ctx context.Context, timer *time.Timer, timeout time.Duration, holds func() bool) error {
	for first := true; ; first = false {
		p.mu.Lock()
		ok, aborted := holds(), p.aborted
		p.mu.Unlock()
		if ok {
			return nil
		}
		if aborted != nil {
			return aborted
		}
		if first {
			timer.Reset(timeout)
		}
		select {
		case <-p.changed:
			timer.Reset(timeout)
		case <-timer.C:
			return fmt.Errorf("no acknowledgement of JetStream within %v", timeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish releases the semaphore for messages without an acknowledgement, and returns
// all messages.
func (p *pipeline) finish() []sentMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	for ; p.inFlight > 0; p.inFlight-- {
		<-p.sem
	}
	return p.messages
}
