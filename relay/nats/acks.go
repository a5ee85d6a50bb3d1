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

// acks are the answers of servers to the messages of all runs: one subscription,
// and a reply subject per message that says which one of which run it is.
type acks struct {
	prefix string

	mu   sync.Mutex
	next uint64
	runs map[uint64]*run
}

func newAcks() *acks { return &acks{runs: map[uint64]*run{}} }

func (a *acks) subscribe(conn *natsgo.Conn) error {
	a.prefix = conn.NewInbox() + "."
	sub, err := conn.Subscribe(a.prefix+"*.*", a.receive)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1) // slots bound them
}

// add makes a run known, and returns what its reply subjects begin with. Before
// it is aborted or removed, it gets its answers.
func (a *acks) add(r *run) (reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	r.id = a.next
	a.runs[r.id] = r
	return a.prefix + strconv.FormatUint(r.id, 36) + "."
}

func (a *acks) remove(r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, r.id)
}

// abort tells all runs that no answer will come.
func (a *acks) abort(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		r.abort(err)
	}
}

func (a *acks) receive(m *natsgo.Msg) {
	if len(m.Subject) < len(a.prefix) {
		return
	}
	runID, index, _ := strings.Cut(m.Subject[len(a.prefix):], ".")
	id, err := strconv.ParseUint(runID, 36, 64)
	i, indexErr := strconv.Atoi(index)
	if err != nil || indexErr != nil {
		return
	}
	a.mu.Lock()
	r := a.runs[id]
	a.mu.Unlock()
	if r != nil {
		r.answer(i, parseAck(m))
	}
}

// ack is an answer.
type ack struct {
	sequence  uint64
	duplicate bool
	err       error
}

var errNoAnswer = errors.New("no answer")

// parseAck reads an answer. Most have a sequence and little else, and names have
// no quotes: those are not decoded as JSON, which costs more than all else here.
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
		return ack{err: fmt.Errorf("an answer that is none of JetStream: %.100q", m.Data)}
	}
	return ack{err: refusal.Error}
}

// What JetStream refuses a message for, by its error codes.
const (
	codeWrongLast         jetstream.ErrorCode = 10071
	codeWrongLastConstant jetstream.ErrorCode = 10164 // of a cluster, before it knows
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

// outOfStep: the stream does not end where the message should follow.
func outOfStep(err error) bool {
	switch code(err) {
	case codeWrongLast, codeWrongLastConstant, codeDuplicateInFlight:
		return true
	}
	return false
}

// tooLarge: no server will ever take the message.
func tooLarge(err error) bool {
	switch code(err) {
	case codeMessageTooLarge, codeHeaderTooLarge:
		return true
	}
	return errors.Is(err, natsgo.ErrMaxPayload) || errors.Is(err, errHeaderTooLarge)
}
