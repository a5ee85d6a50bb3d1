package torture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// tend does upkeep, more often than any node would.
func (r *run) tend(ctx context.Context) {
	c := r.newClient()
	defer c.forget()
	for c.connected(ctx) {
		var failed *string
		err := c.conn.QueryRow(ctx, "select t->>'errors' from posthorn.tend() t").Scan(&failed)
		if err == nil && failed != nil {
			c.fail(fmt.Errorf("tend: %s", *failed))
		}
		c.broken(ctx, err)
		pause(ctx, c.upTo(200*time.Millisecond))
	}
}

// holdSnapshots keeps transactions open that hold vacuum back, some with an xid.
func (r *run) holdSnapshots(ctx context.Context) {
	c := r.newClient()
	defer c.forget()
	for c.connected(ctx) {
		sql := "begin isolation level repeatable read; select count(*) from posthorn.groups"
		if c.chance(2) {
			sql = "begin; select pg_current_xact_id()"
		}
		_, err := c.conn.Exec(ctx, sql)
		if !c.broken(ctx, err) {
			pause(ctx, c.upTo(2*time.Second))
			_, err = c.conn.Exec(ctx, "rollback")
			c.broken(ctx, err)
		}
		pause(ctx, c.upTo(time.Second))
	}
}

// terminateBackends ends one of the clients' connections every now and then, in
// the middle of whatever it does.
func (r *run) terminateBackends(ctx context.Context) {
	c := r.newClient()
	defer c.forget()
	for pause(ctx, c.upTo(200*time.Millisecond)) && c.connected(ctx) {
		_, err := c.conn.Exec(ctx, "select pg_terminate_backend($1::int)", c.backends.any(c.rng))
		c.broken(ctx, err)
	}
}

// crashServer lets Postgres crash, if the run is to have that.
func (r *run) crashServer(ctx context.Context) {
	for r.Crash != nil && pause(ctx, r.CrashEvery) {
		over := r.record.crashed()
		if err := r.Crash(context.WithoutCancel(ctx)); err != nil {
			r.fail(fmt.Errorf("crash postgres: %w", err))
			return
		}
		over()
	}
}

// defineLateGroups defines groups in the middle of the load. One that was begun is
// finished: without workers it would seem lost.
func (r *run) defineLateGroups(ctx, disturbing context.Context) {
	c := r.newClient()
	defer c.forget()
	for _, g := range lateGroups() {
		if !pause(disturbing, r.For/time.Duration(len(lateGroups())+1)) {
			return
		}
		for c.connected(ctx) {
			if err := r.define(ctx, c.conn, g); !c.broken(ctx, err) {
				break
			}
		}
	}
}

// patience is how long drain waits while nothing changes.
const patience = 20 * time.Second

// limit is how long drain waits in all. Passing it is no violation: something
// still happens, and what it would have come to is unknown.
func (r *run) limit() time.Duration { return 3*time.Minute + r.For }

// drain waits until nothing is left to do in any group, and returns what is
// left when nothing happens any more.
func (r *run) drain(ctx context.Context) []string {
	c := r.newClient()
	defer c.forget()
	c.finishPrepared(ctx)
	var last []string
	began := time.Now()
	changed := began
	for c.connected(ctx) {
		left, err := c.left(ctx)
		if err == nil && len(left) == 0 {
			return nil
		}
		if !c.broken(ctx, err) && !slices.Equal(left, last) {
			last, changed = left, time.Now()
		}
		if time.Since(changed) > patience {
			return left
		}
		if time.Since(began) > r.limit() {
			c.fail(fmt.Errorf("still being handled after %s: %q", r.limit(), left))
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// finishPrepared rolls back prepared transactions whose publishers lost sight of them.
func (c *client) finishPrepared(ctx context.Context) {
	for c.connected(ctx) {
		rows, _ := c.conn.Query(ctx, "select gid from pg_prepared_xacts where database = current_database()")
		gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, gid := range gids {
			if _, err = c.conn.Exec(ctx, "rollback prepared '"+gid+"'"); err != nil {
				break
			}
		}
		if !c.broken(ctx, err) {
			return
		}
	}
}

// left says which groups have not handled everything.
func (c *client) left(ctx context.Context) ([]string, error) {
	rows, _ := c.conn.Query(ctx, `
		select s.namespace || '/' || s.group_name || ': ' || s.lag_events || ' pending, ' || s.leases || ' leased, ' || s.retries || ' retried'
		from posthorn.group_status s where s.lag_events + s.leases + s.retries > 0
		union all
		select count(*) || ' delayed' from posthorn.delayed having count(*) > 0`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
