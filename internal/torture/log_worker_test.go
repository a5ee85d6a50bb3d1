package torture

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// worker claims the events of one group, and settles, fails, delays or abandons them.
type worker struct {
	*client
	group     *group
	node      string
	publisher *publisher // uses the same connection
}

func (l *logPart) newWorker(g *group, n int) *worker {
	p := l.newPublisher([]string{g.namespace}, logStreams)
	return &worker{client: p.client, group: g, node: fmt.Sprintf("%s-%d", g.name, n), publisher: p}
}

func (w *worker) work(ctx context.Context) {
	defer w.forget()
	var last *handout // is settled by the next take
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

// kills reports whether a batch contains an event that every worker dies of. Each
// such event stops a total order for seconds, so a long run has few, and a short run
// some.
func (w *worker) kills(h *handout) bool {
	for _, e := range h.events {
		if e.uid < 10_000 && e.uid%1001 == 0 || e.uid%100_003 == 0 {
			return true
		}
	}
	return false
}

// next gets a lease in one of three ways, after settling the last one if there is
// one.
func (w *worker) next(ctx context.Context, last *handout) (h *handout, err error) {
	h = &handout{group: w.group, from: w.record.now()}
	switch {
	case last != nil || w.chance(2):
		err = w.take(ctx, h, last)
	case w.chance(10) && w.publishing.Err() == nil:
		err = w.claimAndPublish(ctx, h)
	default:
		err = w.claim(ctx, h)
	}
	if err != nil || h.lease == 0 {
		return nil, err
	}
	w.record.handOut(h)
	return h, nil
}

func (w *worker) maxEvents() int {
	if w.chance(4) {
		return 100
	}
	return 1 + w.rng.IntN(30)
}

// leaseFor is short, so that many leases expire.
func (w *worker) leaseFor() time.Duration {
	if w.draining.Load() {
		return 500 * time.Millisecond
	}
	return 20*time.Millisecond + upTo(w.rng, time.Second)
}

func (w *worker) claim(ctx context.Context, h *handout) error {
	rows, _ := w.conn.Query(ctx, `
		select lease, attempt, event_id, stream, key, (payload->>'uid')::bigint, delivery
		from posthorn.claim($1, $2, $3, $4, $5)`,
		w.group.namespace, w.group.name, w.node, w.maxEvents(), w.leaseFor())
	return h.scan(rows, &h.lease, &h.attempt)
}

// scan reads the events of a lease. Columns for further precede theirs.
func (h *handout) scan(rows pgx.Rows, further ...any) error {
	var e handed
	var stream string
	var key *string
	_, err := pgx.ForEachRow(rows, append(further, &e.id, &stream, &key, &e.uid, &e.delivery), func() error {
		e.unit = h.group.unit(stream, key)
		h.events = append(h.events, e)
		return nil
	})
	return err
}

// take settles one lease and takes the next in one round trip, and records the
// outcomes in the same transaction.
func (w *worker) take(ctx context.Context, h, last *handout) error {
	var token [16]byte
	rand.Read(token[:])
	var lease, attempt any
	if last != nil {
		lease, attempt = last.lease, last.attempt
	}
	batch := &pgx.Batch{}
	batch.Queue("select lease, attempt from posthorn.take($1, $2, $3, $4, $5, $6, $7)",
		w.group.id, w.node, w.maxEvents(), w.leaseFor(), token, lease, attempt).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&h.lease, &h.attempt}, func() error { return nil })
		return err
	})
	batch.Queue(`
		select e.event_id, s.name, e.key, (e.payload->>'uid')::bigint, e.delivery
		from posthorn.lease_events($1) e join posthorn.streams s on s.id = e.stream_id order by e.event_id`,
		token).Query(func(rows pgx.Rows) error { return h.scan(rows) })
	if last != nil {
		last.outcomes = last.all(done)
		last.note(batch)
	}
	err := w.conn.SendBatch(ctx, batch).Close()
	if err == nil && last != nil {
		w.settled(last, h.from)
	}
	return err
}

// claimAndPublish claims in a transaction that also publishes, before and after the
// claim.
func (w *worker) claimAndPublish(ctx context.Context, h *handout) error {
	tx := w.record.begin()
	publish := func() error {
		pause(ctx, upTo(w.rng, 3*time.Millisecond))
		return w.publisher.publishOne(ctx, w.record.newMessage(tx, w.group.namespace), "")
	}
	_, err := w.conn.Exec(ctx, "begin")
	if err == nil && w.chance(2) {
		err = publish()
	}
	if err == nil {
		err = w.claim(ctx, h)
	}
	if err == nil {
		err = publish()
	}
	if err != nil {
		h.lease = 0
		w.record.end(tx, w.publisher.gaveUp(ctx, err))
		return nil
	}
	if _, err = w.conn.Exec(ctx, "commit"); err != nil {
		w.record.end(tx, inDoubt)
		return err
	}
	w.record.end(tx, committed)
	return nil
}
