package torture

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// worker claims and handles the events of one group, well or badly.
type worker struct {
	*client
	group     *group
	node      string
	publisher *publisher // on the same connection
}

func (l *logPart) newWorker(g *group, n int) *worker {
	p := l.newPublisher([]string{g.namespace}, logStreams)
	return &worker{client: p.client, group: g, node: fmt.Sprintf("%s-%d", g.name, n), publisher: p}
}

func (w *worker) work(ctx context.Context) {
	defer w.forget()
	var last *handout // to be settled by the next take
	idle := 1
	for w.connected(ctx) {
		h, err := w.next(ctx, last)
		last = nil
		if h != nil {
			idle = 1
		}
		switch {
		case hasCode(err, leaseLost):
			w.record.count("refused")
		case err != nil:
			w.broken(ctx, err)
		case h == nil:
			idle = min(2*idle, 16)
			pause(ctx, upTo(w.rng, time.Duration(idle)*10*time.Millisecond))
		case w.kills(h):
			w.record.count("workers killed by an event")
			w.forget()
		case w.chance(4):
			last = h
		default:
			w.handle(ctx, h)
		}
	}
}

// kills tells whether a batch holds an event that no worker survives. Each stops
// a total order for seconds: there are few in a long run, and some in a short one.
func (w *worker) kills(h *handout) bool {
	for _, e := range h.events {
		if e.uid < 10_000 && e.uid%3001 == 0 || e.uid%100_003 == 0 {
			return true
		}
	}
	return false
}

// next gets a lease in one of three ways, and settles the last one first if
// there is one.
func (w *worker) next(ctx context.Context, last *handout) (*handout, error) {
	switch {
	case last != nil || w.chance(2):
		return w.take(ctx, last)
	case w.chance(10) && w.publishing.Err() == nil:
		return w.claimAndPublish(ctx)
	}
	h, err := w.claim(ctx)
	if err != nil {
		return nil, err
	}
	return w.remember(h), nil
}

// remember files a handout, and drops one that holds nothing.
func (w *worker) remember(h *handout) *handout {
	if h == nil || h.lease == 0 {
		return nil
	}
	w.record.handOut(h)
	return h
}

func (w *worker) maxEvents() int {
	if w.chance(4) {
		return 100
	}
	return 1 + w.rng.IntN(30)
}

// leaseFor is short, so that many expire.
func (w *worker) leaseFor() time.Duration {
	if w.draining.Load() {
		return 500 * time.Millisecond
	}
	return 20*time.Millisecond + upTo(w.rng, time.Second)
}

func (w *worker) claim(ctx context.Context) (*handout, error) {
	h := &handout{group: w.group, from: w.record.now()}
	rows, err := w.conn.Query(ctx, `
		select lease, attempt, event_id, stream, key, (payload->>'uid')::bigint, delivery
		from posthorn.claim($1, $2, $3, $4, $5)`,
		w.group.namespace, w.group.name, w.node, w.maxEvents(), w.leaseFor())
	if err != nil {
		return nil, err
	}
	var e handed
	var stream string
	var key *string
	_, err = pgx.ForEachRow(rows, []any{&h.lease, &h.attempt, &e.id, &stream, &key, &e.uid, &e.delivery}, func() error {
		e.unit = w.group.unit(stream, key)
		h.events = append(h.events, e)
		return nil
	})
	return h, err
}

// take is the fast way: it settles one lease and takes the next in one round
// trip, and notes what was settled in the same transaction.
func (w *worker) take(ctx context.Context, last *handout) (*handout, error) {
	h := &handout{group: w.group, from: w.record.now()}
	var token [16]byte
	rand.Read(token[:])
	var lease, attempt any
	batch := &pgx.Batch{}
	if last != nil {
		lease, attempt = last.lease, last.attempt
	}
	batch.Queue("select lease, attempt from posthorn.take($1, $2, $3, $4, $5, $6, $7)",
		w.group.id, w.node, w.maxEvents(), w.leaseFor(), token, lease, attempt).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&h.lease, &h.attempt}, func() error { return nil })
		return err
	})
	batch.Queue(`
		select e.event_id, s.name, e.key, (e.payload->>'uid')::bigint, e.delivery
		from posthorn.lease_events($1) e join posthorn.streams s on s.id = e.stream_id order by e.event_id`, token).Query(func(rows pgx.Rows) error {
		var e handed
		var stream string
		var key *string
		_, err := pgx.ForEachRow(rows, []any{&e.id, &stream, &key, &e.uid, &e.delivery}, func() error {
			e.unit = w.group.unit(stream, key)
			h.events = append(h.events, e)
			return nil
		})
		return err
	})
	if last != nil {
		last.outcomes = last.all(done)
		last.note(batch)
	}
	if err := w.conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	if last != nil {
		w.settled(last, h.from)
	}
	return w.remember(h), nil
}

// claimAndPublish claims in a transaction that publishes too, before and after.
func (w *worker) claimAndPublish(ctx context.Context) (*handout, error) {
	tx := w.record.begin()
	h, err := w.claimBetween(ctx, tx)
	if err != nil {
		w.record.end(tx, w.publisher.gaveUp(ctx, err))
		return nil, nil
	}
	_, err = w.conn.Exec(ctx, "commit")
	if err != nil {
		w.record.end(tx, inDoubt)
		return nil, err
	}
	w.record.end(tx, committed)
	return w.remember(h), nil
}

func (w *worker) claimBetween(ctx context.Context, tx *transaction) (*handout, error) {
	if _, err := w.conn.Exec(ctx, "begin"); err != nil {
		return nil, err
	}
	publish := func() error {
		return w.publisher.publishOne(ctx, w.record.newMessage(tx, w.group.namespace), "")
	}
	if w.chance(2) {
		if err := publish(); err != nil {
			return nil, err
		}
		pause(ctx, upTo(w.rng, 3*time.Millisecond))
	}
	h, err := w.claim(ctx)
	if err != nil {
		return nil, err
	}
	pause(ctx, upTo(w.rng, 3*time.Millisecond))
	return h, publish()
}
