package torture

import (
	"context"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/schema"
)

// database is the Postgres server of a run. It is killed repeatedly, with durable
// commits.
type database struct {
	*run
	url     string // with Posthorn and nothing else
	proxy   *testpg.Proxy
	clients string         // URL for clients, which try the proxy first
	server  *testpg.Server // nil if Patroni runs the servers
	version string         // of Postgres, for the report

	orders []string // URLs with the servers in several orders, of which clients take any
}

var serverSettings = map[string]string{"max_connections": "200", "max_prepared_transactions": "50", "fsync": "on"}

func startDatabase(r *run) *database {
	server := testpg.StartPrimary(r.t, serverSettings)
	d := &database{run: r, server: server, url: server.URL()}
	d.prepare()
	d.proxy = testpg.NewProxy(r.t, d.url)
	d.clients = d.proxy.URL(r.t)
	return d
}

// prepare installs Posthorn.
func (d *database) prepare() {
	d.migrate(d.url)
	version, err := testpg.Version(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.version = version
}

// another creates a second database on the server.
func (d *database) another(name string) string {
	d.exec(d.url, "create database "+name)
	u, err := url.Parse(d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	u.Path = "/" + name
	d.migrate(u.String())
	return u.String()
}

func (d *database) migrate(url string) {
	d.with(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := schema.Migrate(ctx, conn, schema.Options{})
		return err
	})
}

func (d *database) exec(url, sql string) {
	d.with(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func (d *database) with(url string, do func(context.Context, *pgx.Conn) error) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), url)
	if err == nil {
		defer conn.Close(d.t.Context())
		err = do(d.t.Context(), conn)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// sessions describes the statements and waits of the server's sessions, and the prepared transactions.
func (d *database) sessions() (lines []string) {
	d.with(d.url, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, `
			select concat_ws(' ', pid, state, wait_event, 'for', array_to_string(pg_blocking_pids(pid), ','), now() - query_start, left(query, 150)) from pg_stat_activity
			where backend_type = 'client backend'
			union all
			select concat_ws(' ', gid, prepared, (select string_agg(distinct locktype || coalesce(' ' || relation::regclass::text, ''), ', ') from pg_locks l where l.virtualtransaction = '-1/' || p.transaction))
			from pg_prepared_xacts p`)
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return lines
}

// crash kills Postgres with kill -9 and starts it again.
func (d *database) crash() fault {
	rng := d.random()
	return fault{"Postgres", func(int) {
		over := d.record.crashed()
		if err := d.server.Kill(); err != nil {
			d.t.Fatal(err)
		}
		pause(d.ctx, upTo(rng, 300*time.Millisecond))
		d.server.Restart(d.t)
		over()
	}}
}

// silence makes the proxy stop answering, and in the next round answer again.
func (d *database) silence() fault {
	return fault{"silence", func(round int) {
		if round%2 == 0 {
			d.proxy.Silence()
		} else {
			d.proxy.Speak()
		}
	}}
}
