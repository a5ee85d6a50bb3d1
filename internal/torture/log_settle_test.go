package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const leaseLost = "PH003"

// Outcomes of an event in a lease, as stored in torture.handled.
const (
	done      = "done"
	failed    = "failed"
	permanent = "permanent"
	released  = "released"
)

// handle settles, loses, or delays a lease, by chance.
func (w *worker) handle(ctx context.Context, h *handout) {
	pause(ctx, upTo(w.rng, 10*time.Millisecond))
	if w.draining.Load() {
		w.settle(ctx, h, h.all(done))
		return
	}
	switch w.rng.IntN(20) {
	case 0:
		w.refusable(ctx, "select posthorn.release($1, $2)", h.lease, h.attempt)
	case 1: // die
		w.record.count("abandoned")
		w.forget()
	case 2: // settle late
		pause(ctx, 50*time.Millisecond+upTo(w.rng, 2*time.Second))
		w.settle(ctx, h, h.all(done))
	case 3:
		w.refusable(ctx, "select posthorn.extend($1, $2, '300 ms')", h.lease, h.attempt)
		pause(ctx, upTo(w.rng, 300*time.Millisecond))
		w.settle(ctx, h, h.all(done))
	case 4: // settle twice: if the second settlement is accepted, torture.handled shows it
		w.settle(ctx, h, h.all(done))
		w.settle(ctx, h, h.all(done))
	case 5, 6, 7:
		w.settle(ctx, h, w.someFail(h))
	default:
		w.settle(ctx, h, h.all(done))
	}
}

func (h *handout) all(outcome string) []string {
	outcomes := make([]string, len(h.events))
	for i := range outcomes {
		outcomes[i] = outcome
	}
	return outcomes
}

// someFail makes events fail. In a group where failures block, the events after the
// first failure are released.
func (w *worker) someFail(h *handout) []string {
	outcomes := h.all(done)
	for i := range outcomes {
		switch {
		case w.group.blocks && i > 0 && outcomes[i-1] != done:
			outcomes[i] = released
		case w.chance(300):
			outcomes[i] = permanent
		case w.chance(8):
			outcomes[i] = failed
		}
	}
	return outcomes
}

// settle ends a lease and records the outcomes in the same transaction, so that
// torture.handled is right even if the answer is lost.
func (w *worker) settle(ctx context.Context, h *handout, outcomes []string) {
	if !w.connected(ctx) {
		return
	}
	h.outcomes = outcomes
	from := w.record.now()
	batch := &pgx.Batch{}
	batch.Queue("select posthorn.settle($1, $2, $3)", h.lease, h.attempt, w.failures(h))
	h.note(batch)
	err := w.conn.SendBatch(ctx, batch).Close()
	switch {
	case err == nil:
		w.settled(h, from)
	case hasCode(err, leaseLost):
		w.record.count("refused")
	default:
		w.broken(ctx, err)
	}
}

// settled records that a settlement was accepted.
func (w *worker) settled(h *handout, from moment) {
	h.settled(from, w.record.now())
	w.record.done.Add(int64(len(h.events)))
}

func (h *handout) settled(from, to moment) { h.settleFrom, h.settleTo = from, to }

// note adds statements to a batch that record the outcomes.
func (h *handout) note(batch *pgx.Batch) {
	ids := make([]int64, len(h.events))
	for i, e := range h.events {
		ids[i] = e.id
	}
	batch.Queue(`insert into torture.handled (group_id, event_id, lease, attempt, outcome)
		select $1, unnest($2::bigint[]), $3, $4, unnest($5::text[])`, h.group.id, ids, h.lease, h.attempt, h.outcomes)
}

// failures is the argument of settle.
func (w *worker) failures(h *handout) string {
	type failure struct {
		Event     int64  `json:"event"`
		Error     string `json:"error"`
		Permanent bool   `json:"permanent"`
		Released  bool   `json:"released"`
		RetryIn   string `json:"retry_in,omitempty"`
	}
	list := []failure{}
	for i, e := range h.events {
		if h.outcomes[i] == done {
			continue
		}
		f := failure{Event: e.id, Error: h.outcomes[i], Permanent: h.outcomes[i] == permanent, Released: h.outcomes[i] == released}
		if w.chance(2) {
			f.RetryIn = fmt.Sprintf("%d ms", w.rng.IntN(50))
		}
		list = append(list, f)
	}
	text, err := json.Marshal(list)
	if err != nil {
		w.fail(err)
	}
	return string(text)
}

// refusable runs a statement that is refused if the worker has lost its lease.
func (w *worker) refusable(ctx context.Context, sql string, args ...any) {
	if !w.connected(ctx) {
		return
	}
	_, err := w.conn.Exec(ctx, sql, args...)
	if hasCode(err, leaseLost) {
		w.record.count("refused")
		return
	}
	w.broken(ctx, err)
}
