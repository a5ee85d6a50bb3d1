package torture

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// logPart loads the log with transactions of every kind, groups of every order, and
// workers that fail, are late or die.
type logPart struct {
	*run
	observer *client

	mu     sync.Mutex
	groups []*group
}

const workersPerGroup = 2

var logStreams = []string{"stream-0", "stream-1", "stream-2", "stream-3", "stream-4", "stream-5"}

func (l *logPart) load() load {
	return load{publishers: 24, pace: 20 * time.Millisecond, short: 200, step: 300}
}

func (l *logPart) faults() []fault {
	return []fault{l.connections(5), l.database.crash(), l.connections(5), l.database.silence()}
}

func (l *logPart) publisher() func(context.Context) {
	p := l.newPublisher([]string{"default", "default", "default", "other"}, logStreams)
	l.t.Cleanup(p.forget)
	return p.once
}

func (l *logPart) start() {
	// In torture.handled, workers record the outcome of each event in the transaction
	// that settles it. The streams are created in advance, because a publisher that
	// creates a stream blocks the others until it commits.
	l.database.exec(l.database.url, `
		create schema torture;
		create table torture.handled (
			n bigint generated always as identity,
			group_id int, event_id bigint, lease bigint, attempt int, outcome text
		);
		select posthorn.define_namespace('other');
		select posthorn.stream_id(n, 'stream-' || i) from unnest(array['default', 'other']) n, generate_series(0, 5) i;`)
	l.database.with(l.database.url, func(ctx context.Context, conn *pgx.Conn) error {
		for _, g := range initialGroups() {
			if err := l.define(ctx, conn, g); err != nil {
				return err
			}
		}
		return nil
	})
	l.observer = l.newClient()
	l.t.Cleanup(l.observer.forget)
	l.clients.Go(l.upkeep)
	if !l.record.forgets { // a fault may undo the definition of a group
		l.clients.Go(l.defineLateGroups)
	}
	l.clients.Go(l.terminateBackends)
	l.clients.Go(l.holdSnapshots)
}

// defineLateGroups defines groups under load.
func (l *logPart) defineLateGroups() {
	c := l.newClient()
	defer c.forget()
	late := lateGroups()
	for i, g := range late {
		for l.elapsed() < float64(i+1)/float64(len(late)+1) {
			if !pause(l.publishing, 20*time.Millisecond) {
				return
			}
		}
		// It retries until the group has workers: a group without workers would
		// appear to lose events.
		for c.connected(l.ctx) {
			if err := l.define(l.ctx, c.conn, g); !c.broken(l.ctx, err) {
				break
			}
		}
	}
}

// left lists the groups that have not handled all events.
func (l *logPart) left() ([]string, error) {
	if err := l.observer.finishPrepared(l.ctx); err != nil {
		return nil, err
	}
	rows, _ := l.observer.conn.Query(l.ctx, `
		select s.namespace || '/' || s.group_name || ': ' || s.lag_events || ' pending, ' || s.leases || ' leased, ' || s.retries || ' retried'
		from posthorn.group_status s where s.lag_events + s.leases + s.retries > 0
		union all
		select count(*) || ' delayed' from posthorn.delayed having count(*) > 0`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (l *logPart) check() (string, *findings) {
	var t truth
	l.database.with(l.database.url, t.read)
	c := newLogChecker(l.record, l.groups, t)
	c.check()
	n := l.record.counts
	for _, h := range l.record.handouts {
		n["handed out"] += len(h.events)
		for _, e := range h.events {
			if e.delivery > 1 {
				n["retried"]++
			}
		}
	}
	for _, h := range t.handled {
		n[h.Outcome]++
	}
	return fmt.Sprintf("%s; %d groups: handed out %d in %d leases, done %d, retried %d, dead %d, late settlements refused %d",
		l.record.published(len(t.events)), len(l.groups), n["handed out"], len(l.record.handouts), n[done], n["retried"], len(t.dead), n["refused"]), c.findings
}
