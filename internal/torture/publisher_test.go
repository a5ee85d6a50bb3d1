package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// publisher publishes events in transactions of every kind.
type publisher struct {
	*client
	name       string // prefix of its prepared transactions
	prepared   int
	namespaces []string // chosen with equal probability
	streams    []string
}

func (r *run) newPublisher(namespaces, streams []string) *publisher {
	c := r.newClient()
	return &publisher{client: c, name: fmt.Sprintf("torture-%d", c.rng.Uint64()), namespaces: namespaces, streams: streams}
}

// once publishes in one transaction.
func (p *publisher) once(ctx context.Context) {
	if !p.connected(ctx) {
		return
	}
	tx := p.record.begin()
	switch p.rng.IntN(10) {
	case 0, 1, 2:
		p.record.end(tx, p.ended(ctx, p.publish(ctx, tx), committed))
	case 3, 4:
		p.record.end(tx, p.twoPhase(ctx, tx))
	case 5:
		p.record.end(tx, p.plain(ctx, tx, "rollback", rolledBack))
	default:
		p.record.end(tx, p.plain(ctx, tx, "commit", committed))
	}
}

// plain ends a transaction on the connection that began it.
func (p *publisher) plain(ctx context.Context, tx *transaction, end string, o outcome) outcome {
	if err := p.fill(ctx, tx); err != nil {
		return p.gaveUp(ctx, err)
	}
	_, err := p.conn.Exec(ctx, end)
	return p.ended(ctx, err, o)
}

// ended returns the outcome of a transaction whose last statement was sent.
func (p *publisher) ended(ctx context.Context, err error, o outcome) outcome {
	if err == nil {
		return o
	}
	if hasCode(err, deadlock) {
		return rolledBack
	}
	if hasCode(err, unconfirmed) {
		p.unconfirmed.Add(1)
	}
	p.broken(ctx, err)
	return inDoubt
}

// deadlock is the error of two publishers that create the same streams, or use the
// same dedup keys, in different order. Applications get this error too.
const deadlock = "40P01"

// gaveUp returns the outcome of a transaction that did not try to commit.
func (p *publisher) gaveUp(ctx context.Context, err error) outcome {
	if hasCode(err, deadlock) {
		_, err = p.conn.Exec(ctx, "rollback")
	}
	p.broken(ctx, err)
	return rolledBack
}

// fill begins a transaction and publishes some messages in it, with pauses.
func (p *publisher) fill(ctx context.Context, tx *transaction) error {
	if _, err := p.conn.Exec(ctx, "begin"); err != nil {
		return err
	}
	for range 1 + p.rng.IntN(4) {
		var err error
		if p.chance(5) {
			err = p.withSavepoint(ctx, tx)
		} else {
			err = p.publish(ctx, tx)
		}
		if err != nil {
			return err
		}
		pause(ctx, upTo(p.rng, 3*time.Millisecond))
		if p.chance(100) {
			pause(ctx, upTo(p.rng, 2*time.Second))
		}
	}
	return nil
}

func (p *publisher) withSavepoint(ctx context.Context, tx *transaction) error {
	if _, err := p.conn.Exec(ctx, "savepoint s"); err != nil {
		return err
	}
	before := len(tx.messages)
	if err := p.publish(ctx, tx); err != nil {
		return err
	}
	if p.chance(2) {
		_, err := p.conn.Exec(ctx, "release s")
		return err
	}
	if _, err := p.conn.Exec(ctx, "rollback to s"); err != nil {
		return err
	}
	tx.undo(before)
	return nil
}

// twoPhase prepares a transaction and ends it later. If the connection breaks in
// between, another connection ends it.
func (p *publisher) twoPhase(ctx context.Context, tx *transaction) outcome {
	if err := p.fill(ctx, tx); err != nil {
		return p.gaveUp(ctx, err)
	}
	p.prepared++
	gid := fmt.Sprintf("%s-%d", p.name, p.prepared)
	_, err := p.conn.Exec(ctx, "prepare transaction '"+gid+"'")
	if err != nil {
		p.broken(ctx, err)
		return inDoubt
	}
	tx.prepared = p.record.now()
	pause(ctx, upTo(p.rng, 300*time.Millisecond))
	end, o := "commit prepared", committed
	if p.chance(3) {
		end, o = "rollback prepared", rolledBack
	}
	for p.connected(ctx) {
		_, err := p.conn.Exec(ctx, fmt.Sprintf("%s '%s'", end, gid))
		switch {
		case err == nil:
			return o
		case hasCode(err, "42704"): // does not exist: an earlier attempt has ended it
			return o
		case hasCode(err, unconfirmed):
			return inDoubt
		}
		p.broken(ctx, err)
	}
	return inDoubt
}

// publish publishes one or more messages in one call.
func (p *publisher) publish(ctx context.Context, tx *transaction) error {
	namespace := p.namespaces[p.rng.IntN(len(p.namespaces))]
	switch p.rng.IntN(8) {
	case 0:
		return p.publishSeveral(ctx, tx, namespace, publishMany, 4)
	case 1:
		return p.publishSeveral(ctx, tx, namespace, publishBatch, 50)
	case 2:
		m := p.record.newMessage(tx, namespace)
		m.delayed = true
		return p.publishOne(ctx, m, fmt.Sprintf(", deliver_at => posthorn.now() + interval '%d ms'", p.rng.IntN(1000)))
	case 3:
		m := p.record.newMessage(tx, namespace)
		m.dedup = fmt.Sprintf("%s-%d", namespace, p.rng.IntN(500))
		return p.publishOne(ctx, m, ", dedup_key => '"+m.dedup+"'")
	default:
		return p.publishOne(ctx, p.record.newMessage(tx, namespace), "")
	}
}

func (p *publisher) publishOne(ctx context.Context, m *message, more string) error {
	sql := "select posthorn.publish($1, 'torture', $2::text, stream => $3, key => $4" + more + ")"
	return p.conn.QueryRow(ctx, sql, m.namespace, m.payload(), p.stream(), p.key()).Scan(&m.id)
}

const (
	publishBatch = "select posthorn.publish_batch($1, array_fill('torture'::text, array[cardinality($2::text[])]), $2::text[]::json[], $3::text[], $4::text[])"
	publishMany  = `select posthorn.publish_many($1, (
		select jsonb_agg(jsonb_build_object('type', 'torture', 'payload', payload::jsonb, 'stream', stream, 'key', key) order by n)
		from unnest($2::text[], $3::text[], $4::text[]) with ordinality m (payload, stream, key, n)))`
)

// publishSeveral publishes up to max messages in one call.
func (p *publisher) publishSeveral(ctx context.Context, tx *transaction, namespace, sql string, max int) error {
	var payloads, streams []string
	var keys []*string
	before := len(tx.messages)
	for range 1 + p.rng.IntN(max) {
		payloads = append(payloads, p.record.newMessage(tx, namespace).payload())
		streams, keys = append(streams, p.stream()), append(keys, p.key())
	}
	rows, _ := p.conn.Query(ctx, sql, namespace, payloads, streams, keys)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for i, id := range ids {
		tx.messages[before+i].id = id
	}
	return err
}

func (m *message) payload() string { return fmt.Sprintf(`{"uid": %d}`, m.uid) }

func (p *publisher) stream() string {
	if p.chance(1000) {
		return fmt.Sprintf("stream-new-%d", p.rng.IntN(100))
	}
	return p.streams[p.rng.IntN(len(p.streams))]
}

func (p *publisher) key() *string {
	if p.chance(8) {
		return nil
	}
	key := fmt.Sprintf("key-%d", p.rng.IntN(40))
	return &key
}
