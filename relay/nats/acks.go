package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ackInbox receives the acknowledgements for all pipelines by one subscription. The
// reply subject of a message names its pipeline and its index there.
type ackInbox struct {
	prefix string

	mu        sync.Mutex
	lastID    uint64
	pipelines map[uint64]*pipeline
}

func newAckInbox() *ackInbox { return &ackInbox{pipelines: map[uint64]*pipeline{}} }

func (a *ackInbox) subscribe(conn *natsgo.Conn) error {
	a.prefix = conn.NewInbox() + "."
	sub, err := conn.Subscribe(a.prefix+"*.*", a.receive)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1) // the semaphore of messages limits them
}

// add registers a pipeline, and returns the prefix of its reply subjects.
func (a *ackInbox) add(p *pipeline) (reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastID++
	p.id = a.lastID
	a.pipelines[p.id] = p
	return a.prefix + strconv.FormatUint(p.id, 36) + "."
}

func (a *ackInbox) remove(p *pipeline) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pipelines, p.id)
}

// abort aborts all pipelines, since no more acknowledgements will arrive.
func (a *ackInbox) abort(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pipelines {
		p.abort(err)
	}
}

func (a *ackInbox) receive(m *natsgo.Msg) {
	if len(m.Subject) < len(a.prefix) {
		return
	}
	pipelineID, index, _ := strings.Cut(m.Subject[len(a.prefix):], ".")
	id, err := strconv.ParseUint(pipelineID, 36, 64)
	i, indexErr := strconv.Atoi(index)
	if err != nil || indexErr != nil {
		return
	}
	a.mu.Lock()
	p := a.pipelines[id]
	a.mu.Unlock()
	if p != nil {
		p.acknowledge(i, parseAck(m))
	}
}

// ack is the reply of JetStream to a message: an acknowledgement, or a refusal.
type ack struct {
	sequence  uint64
	duplicate bool
	err       error
}

// parseAck parses a reply. Most replies have a sequence and little else, and names
// contain no quotes. So these replies are searched instead of decoded as JSON, which
// would cost more than the rest of this package.
func parseAck(m *natsgo.Msg) ack {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return ack{err: natsgo.ErrNoResponders}
	}
	if _, after, found := bytes.Cut(m.Data, []byte(`"seq":`)); found && !bytes.Contains(m.Data, []byte(`"error":`)) {
		after = bytes.TrimLeft(after, " ")
		end := bytes.IndexFunc(after, func(c rune) bool { return c < '0' || c > '9' })
		if sequence, err := strconv.ParseUint(string(after[:max(end, 0)]), 10, 64); err == nil && sequence > 0 {
			return ack{sequence: sequence, duplicate: bytes.Contains(after, []byte(`"duplicate":`))}
		}
	}
	var refusal struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refusal); err != nil || refusal.Error == nil {
		return ack{err: fmt.Errorf("unexpected reply from JetStream: %.100q", m.Data)}
	}
	return ack{err: refusal.Error}
}

// Error codes for which JetStream refuses a message.
const (
	codeWrongLast         jetstream.ErrorCode = 10071
	codeWrongLastConstant jetstream.ErrorCode = 10164 // sent by a cluster that does not know the last sequence yet
	codeDuplicateInFlight jetstream.ErrorCode = 10158
	codeMessageTooLarge   jetstream.ErrorCode = 10054
	codeHeaderTooLarge    jetstream.ErrorCode = 10097
)

func code(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// isWrongSequence reports whether the last sequence of the stream is not the expected
// one.
func isWrongSequence(err error) bool {
	switch code(err) {
	case codeWrongLast, codeWrongLastConstant, codeDuplicateInFlight:
		return true
	}
	return false
}

// isTooLarge reports whether the message is larger than servers accept.
func isTooLarge(err error) bool {
	switch code(err) {
	case codeMessageTooLarge, codeHeaderTooLarge:
		return true
	}
	return errors.Is(err, natsgo.ErrMaxPayload) || errors.Is(err, errHeaderTooLarge)
}
