package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

var handlerRows = []row{
	{
		work: "transactional handlers, one transaction each", floor: atLeast(0.7), target: atLeast(0.9), unit: "/s",
		ours: "HandleTx with one INSERT, 10 connections", peer: "begin, the same INSERT, commit; 10 connections",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			n := max(b.events/singlesFraction, 100)
			if err := d.fill(ctx, n); err != nil {
				return nil, nil, err
			}
			if _, err := d.Exec(ctx, effectsSQL); err != nil {
				return nil, nil, err
			}
			if peer, err = d.transacting(ctx, n, transactions); err != nil {
				return nil, nil, err
			}
			return d.handlingTx(n), peer, err
		},
	},
}

// transactions is the number of concurrent transactions, the client's default.
const transactions = 10

const (
	effectsSQL = "create table bare.effects (event_id bigint not null, payload json not null)"
	effectSQL  = "insert into bare.effects (event_id, payload) values ($1, $2)"
)

// handling handles the n events of a log with a new client and a new group. It
// measures from the start of Run until it returns, when all events are settled.
func (d *database) handling(n int, config posthorn.GroupConfig, register func(g *posthorn.Group, done func())) side {
	config.Start = posthorn.Beginning
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet, MaxConns: 2 * transactions})
		if err != nil {
			return 0, err
		}
		defer ph.Close()
		handled := newCounter(n)
		g := ph.Group(fmt.Sprintf("bench-%d", d.names.Add(1)), config)
		register(g, handled.add)
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- ph.Run(running) }()
		err = handled.wait(ctx)
		stop()
		err = errors.Join(err, <-ended)
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		return float64(n) / took.Seconds(), d.checkDone(ctx, g.Name())
	}
}

// checkDone checks that a group has no work left.
func (d *database) checkDone(ctx context.Context, name string) error {
	var lag, leases, retries int
	err := d.QueryRow(ctx, `
		select lag_events, leases, retries
		from posthorn.group_status
		where group_name = $1`, name).Scan(&lag, &leases, &retries)
	if err == nil && lag+leases+retries > 0 {
		err = fmt.Errorf("%s has about %d events, %d leases and %d retries left", name, lag, leases, retries)
	}
	return err
}

// handlingTx writes one effect for each event, in the transaction that settles it.
func (d *database) handlingTx(n int) side {
	work := d.handling(n, posthorn.GroupConfig{Concurrency: transactions}, func(g *posthorn.Group, done func()) {
		g.HandleTx("effect", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
			_, err := tx.Exec(ctx, effectSQL, e.ID, e.Payload)
			if err == nil {
				done()
			}
			return err
		})
	})
	return d.withEffects(n, work)
}

// transacting writes the same effects, each in its own transaction.
func (d *database) transacting(ctx context.Context, n, connections int) (side, error) {
	crew, err := d.crew(ctx, connections, nil)
	if err != nil {
		return nil, err
	}
	return d.withEffects(n, func(ctx context.Context) (float64, error) {
		return crew.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) (int, error) {
			share := crew.share(n, i)
			for k := range share {
				err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, effectSQL, k, []byte(payload))
					return err
				})
				if err != nil {
					return k, err
				}
			}
			return share, nil
		})
	}), nil
}

// withEffects removes all effects before the work, and checks after it that each
// event has one effect.
func (d *database) withEffects(n int, work side) side {
	return func(ctx context.Context) (float64, error) {
		if _, err := d.Exec(ctx, "truncate bare.effects"); err != nil {
			return 0, err
		}
		speed, err := work(ctx)
		if err != nil {
			return 0, err
		}
		effects, err := d.count(ctx, "bare.effects")
		if err == nil && effects != n {
			err = fmt.Errorf("%d effects of %d events", effects, n)
		}
		return speed, err
	}
}
