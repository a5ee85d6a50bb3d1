package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/schema"
)

// database is a database of the benchmark. Rows use separate databases so that they
// do not affect each other.
type database struct {
	*pgx.Conn // for work that is not measured
	server    *server
	name      string
	names     atomic.Int64       // number of groups made so far
	stop      context.CancelFunc // stops upkeep
	upkeep    chan struct{}      // closed when upkeep has ended
	ends      []func()           // called before the database is dropped
}

// newDatabase makes a database with Posthorn's schema and a bare table.
func (s *server) newDatabase(ctx context.Context) *database {
	if s.template == "" {
		s.makeTemplate(ctx)
	}
	d := s.create(ctx, s.template)
	d.runUpkeep(ctx)
	return d
}

// makeTemplate migrates the database that the others are copied from.
func (s *server) makeTemplate(ctx context.Context) {
	d := s.create(ctx, "template0")
	must(schema.Migrate(ctx, d.Conn, schema.Options{}))
	d.exec(ctx, bareSQL)
	d.Close(ctx) // a database with connections cannot be copied
	s.template = d.name
}

// create makes a database and connects to it.
func (s *server) create(ctx context.Context, template string) *database {
	d := &database{server: s, name: fmt.Sprintf("posthorn_bench_%s_%d", s.token, s.count.Add(1))}
	s.databases = append(s.databases, d)
	must(s.admin.Exec(ctx, "create database "+d.name+" template "+template))
	d.Conn = d.connect(ctx, nil)
	return d
}

// bareSQL makes the limits: a table with the columns and defaults of the log and one
// index, in which the same rows can be written and read without Posthorn; and one with
// the two indexes of the log.
const bareSQL = `
	create schema bare;
	create sequence bare.event_id;
	create table bare.events (
		xid xid8 not null default pg_current_xact_id(),
		id bigint not null default nextval('bare.event_id'),
		created_at timestamptz not null default clock_timestamp(),
		namespace_id int not null,
		stream_id int not null,
		type text not null,
		key text,
		tags text[] not null default '{}',
		payload json not null,
		metadata json not null default '{}'
	);
	create index on bare.events (id);
	create table bare.indexed (like bare.events including defaults);
	create index on bare.indexed (namespace_id, id);
	create index on bare.indexed (xid)`

func (d *database) url() string {
	u := *d.server.url
	u.Path = "/" + d.name
	return u.String()
}

// connect opens a connection with its own run-time parameters.
func (d *database) connect(ctx context.Context, parameters map[string]string) *pgx.Conn {
	config := must(pgx.ParseConfig(d.url()))
	config.RuntimeParams["application_name"] = "posthorn bench"
	for name, value := range parameters {
		config.RuntimeParams[name] = value
	}
	return must(pgx.ConnectConfig(ctx, config))
}

// runUpkeep calls posthorn.tend once a second, as nodes do. Upkeep is part of the
// cost of Posthorn, and readers need its ticks to know which partitions they can
// skip.
func (d *database) runUpkeep(ctx context.Context) {
	conn := d.connect(ctx, nil)
	ctx, d.stop = context.WithCancel(ctx)
	d.upkeep = make(chan struct{})
	go func() {
		defer close(d.upkeep)
		defer conn.Close(context.Background())
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			conn.Exec(ctx, "select posthorn.tend()") // after an error, the next call is a second later
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

func (d *database) stopUpkeep() {
	if d.stop != nil {
		d.stop()
		<-d.upkeep
	}
}

// client opens a client of the database.
func (d *database) client(ctx context.Context, config posthorn.Config) *posthorn.Client {
	config.DatabaseURL, config.Logger = d.url(), quiet
	return must(posthorn.Open(ctx, config))
}

// openPool opens connections that are closed at the end of the row.
func (d *database) openPool(ctx context.Context) *pgxpool.Pool {
	pool := openPool(ctx, d.url(), 0, 20)
	d.atEnd(pool.Close)
	return pool
}

// openPool opens connections to a database.
func openPool(ctx context.Context, url string, least, most int32) *pgxpool.Pool {
	config := must(pgxpool.ParseConfig(url))
	config.MinConns, config.MaxConns = least, most
	return must(pgxpool.NewWithConfig(ctx, config))
}

// exec runs statements.
func (d *database) exec(ctx context.Context, sql string, arguments ...any) {
	must(d.Exec(ctx, sql, arguments...))
}

// value returns the only value of a query.
func value[T any](ctx context.Context, d *database, sql string, arguments ...any) (one T) {
	check(d.QueryRow(ctx, sql, arguments...).Scan(&one))
	return one
}

func (d *database) count(ctx context.Context, table string) int {
	return value[int](ctx, d, "select count(*) from "+table)
}

// atEnd registers a function to call before the database is dropped.
func (d *database) atEnd(end func()) { d.ends = append(d.ends, end) }

// drop drops the database, even if connections are open.
func (d *database) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d.stopUpkeep()
	for _, end := range d.ends {
		end()
	}
	if d.Conn != nil {
		d.Close(ctx)
	}
	d.server.admin.Exec(ctx, "drop database if exists "+d.name+" with (force)")
	d.server.databases = slices.DeleteFunc(d.server.databases, func(other *database) bool { return other == d })
}
