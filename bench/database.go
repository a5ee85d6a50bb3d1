package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/schema"
)

// database is one of our own, so that rows do not get in each other's way.
type database struct {
	*pgx.Conn // for everything that is not measured
	server    *server
	name      string
	names     atomic.Int64       // of groups, so far
	stop      context.CancelFunc // of upkeep
	upkeep    chan struct{}      // closed when it has ended
	ends      []func()           // what else has to be closed
}

// newDatabase makes a database with Posthorn's schema and a bare table beside.
func (s *server) newDatabase(ctx context.Context) (*database, error) {
	name := fmt.Sprintf("posthorn_bench_%s_%d", s.token, s.count.Add(1))
	if _, err := s.admin.Exec(ctx, "create database "+name+" template template0"); err != nil {
		return nil, err
	}
	d := &database{server: s, name: name}
	if err := d.open(ctx); err != nil {
		d.drop()
		return nil, err
	}
	return d, nil
}

func (d *database) open(ctx context.Context) (err error) {
	if d.Conn, err = d.connect(ctx, nil); err != nil {
		return err
	}
	if _, err := schema.Migrate(ctx, d.Conn, schema.Options{}); err != nil {
		return err
	}
	if _, err := d.Exec(ctx, bareSQL); err != nil {
		return err
	}
	return d.tend(ctx)
}

// bareSQL makes the limit: a table with the columns and defaults of the log,
// and one index, so that the same rows can be written and read without us.
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
	create index on bare.events (id)`

func (d *database) url() string {
	u := *d.server.url
	u.Path = "/" + d.name
	return u.String()
}

// connect opens a connection with run-time parameters of its own.
func (d *database) connect(ctx context.Context, parameters map[string]string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(d.url())
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "posthorn bench"
	for name, value := range parameters {
		config.RuntimeParams[name] = value
	}
	return pgx.ConnectConfig(ctx, config)
}

// tend does what nodes do all the time: upkeep, once a second. It is part of
// the price, and without its ticks readers would not know which partitions to
// leave out.
func (d *database) tend(ctx context.Context) error {
	conn, err := d.connect(ctx, nil)
	if err != nil {
		return err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.upkeep = make(chan struct{})
	go func() {
		defer close(d.upkeep)
		defer conn.Close(context.Background())
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			conn.Exec(ctx, "select posthorn.tend()") // what fails is done a second later
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return nil
}

// atEnd registers what has to be closed before the database is dropped.
func (d *database) atEnd(end func()) { d.ends = append(d.ends, end) }

// drop removes the database with all that is in it, whoever is connected.
func (d *database) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if d.stop != nil {
		d.stop()
		<-d.upkeep
	}
	for _, end := range d.ends {
		end()
	}
	if d.Conn != nil {
		d.Close(ctx)
	}
	d.server.admin.Exec(ctx, "drop database if exists "+d.name+" with (force)")
}
