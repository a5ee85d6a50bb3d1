package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// fault is a fault to inject. A part lists its faults, and the run injects them in
// turn.
type fault struct {
	name string // for the report
	// inject returns when the fault is over, or will end by itself. It runs in the
	// test's goroutine.
	inject func(round int)
}

// killProcess kills one of the processes, a different one in each round.
func killProcess(name string, processes []*process) fault {
	return fault{name, func(round int) { processes[round%len(processes)].kill() }}
}

// connections terminates n connections of any clients, in the middle of a statement
// or a transaction.
func (r *run) connections(n int) fault {
	c := r.newClient()
	r.t.Cleanup(c.forget)
	return fault{"connections", func(int) {
		for c.connected(r.ctx) && c.broken(r.ctx, c.terminate(n)) {
			continue // another client has terminated this connection
		}
	}}
}

// terminate leaves commits alone that wait for a standby. Postgres shows these without the standby when their connection is
// terminated, as after a cancelled wait, so a failover may lose an event that consumers have seen.
func (c *client) terminate(n int) error {
	_, err := c.conn.Exec(c.ctx, `
		select pg_terminate_backend(pid)
		from (
			select pid from pg_stat_activity
			where backend_type = 'client backend' and pid <> pg_backend_pid() and datname <> 'postgres' -- localpg's
			and wait_event is distinct from 'SyncRep'
			order by random() limit $1
		) chosen`, n)
	return err
}

// terminateBackends terminates a connection at intervals, in addition to the faults.
func (r *run) terminateBackends() {
	c := r.newClient()
	defer c.forget()
	for pause(r.publishing, upTo(c.rng, 200*time.Millisecond)) && c.connected(r.publishing) {
		c.broken(r.ctx, c.terminate(1))
	}
}

// holdSnapshots keeps transactions open, some with an xid, which hold vacuum back.
func (r *run) holdSnapshots() {
	c := r.newClient()
	defer c.forget()
	for c.connected(r.publishing) {
		sql := "begin isolation level repeatable read; select count(*) from posthorn.groups"
		if c.chance(2) {
			sql = "begin; select pg_current_xact_id()"
		}
		_, err := c.conn.Exec(r.ctx, sql)
		if !c.broken(r.ctx, err) {
			pause(r.publishing, upTo(c.rng, 2*time.Second))
			_, err = c.conn.Exec(r.ctx, "rollback")
			c.broken(r.ctx, err)
		}
		pause(r.publishing, upTo(c.rng, time.Second))
	}
}

// upkeep calls posthorn.tend more often than a node does.
func (r *run) upkeep() {
	c := r.newClient()
	defer c.forget()
	for c.connected(r.ctx) {
		var failed *string
		err := c.conn.QueryRow(r.ctx, "select t->>'errors' from posthorn.tend() t").Scan(&failed)
		if err == nil && failed != nil {
			c.fail(fmt.Errorf("tend: %s", *failed))
		}
		c.broken(r.ctx, err)
		pause(r.ctx, upTo(c.rng, 200*time.Millisecond))
	}
}

// finishPrepared rolls back prepared transactions whose publisher has lost them.
func (c *client) finishPrepared(ctx context.Context) error {
	if !c.connected(ctx) {
		return ctx.Err()
	}
	rows, _ := c.conn.Query(ctx, "select gid from pg_prepared_xacts where database = current_database()")
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, gid := range gids {
		if err == nil {
			_, err = c.conn.Exec(ctx, "rollback prepared '"+gid+"'")
		}
	}
	return err
}
