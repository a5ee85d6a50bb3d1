package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

var handlerRows = []row{{
	work: "transactional handlers, one transaction each", floor: atLeast(0.7), target: atLeast(0.9), unit: "/s",
	ours: "HandleTx with one INSERT, 10 connections", peer: "begin, the same INSERT, commit; 10 connections",
	prepare: func(ctx context.Context, b *bench) (ours, peer side) {
		d := b.newDatabase(ctx)
		n := max(b.events/singlesFraction, 100)
		d.fill(ctx, n)
		d.exec(ctx, effectsSQL)
		return d.handlingTx(n), d.transacting(ctx, n, transactions)
	},
}}

// transactions is the number of concurrent transactions, the client's default.
const transactions = 10

const (
	effectsSQL = "create table bare.effects (event_id bigint not null, payload json not null)"
	effectSQL  = "insert into bare.effects (event_id, payload) values ($1, $2)"
)

// inBackground runs a client until stop is called.
func inBackground(ctx context.Context, ph *posthorn.Client) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(running) }()
	return func() {
		cancel()
		check(<-ended)
	}
}

// untilDone runs a client until something that register prepares is done n times. It
// returns the time from the start of Run until then, and until Run has returned.
func untilDone(ctx context.Context, ph *posthorn.Client, n int, register func(done func())) (all, ended time.Duration) {
	counted := newCounter(n)
	register(counted.add)
	start := time.Now()
	stop := inBackground(ctx, ph)
	err := caught(func() { counted.wait(ctx) })
	all = time.Since(start)
	check(errors.Join(err, caught(stop)))
	return all, time.Since(start)
}

// handlingTx handles the n events of a log with a new client and a new group, until all
// of them are settled. It writes one effect for each event, in the transaction that
// settles it.
func (d *database) handlingTx(n int) side {
	return d.withEffects(n, func(ctx context.Context) float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		ph := d.client(ctx, posthorn.Config{MaxConns: 2 * transactions})
		defer ph.Close()
		g := ph.Group(fmt.Sprintf("bench-%d", d.names.Add(1)), posthorn.GroupConfig{Start: posthorn.Beginning, Concurrency: transactions})
		_, took := untilDone(ctx, ph, n, func(done func()) {
			g.HandleTx("effect", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
				_, err := tx.Exec(ctx, effectSQL, e.ID, e.Payload)
				if err == nil {
					done()
				}
				return err
			})
		})
		d.checkDone(ctx, g.Name())
		return float64(n) / took.Seconds()
	})
}

// checkDone checks that a group has no work left.
func (d *database) checkDone(ctx context.Context, name string) {
	var lag, leases, retries int
	check(d.QueryRow(ctx, `
		select lag_events, leases, retries
		from posthorn.group_status
		where group_name = $1`, name).Scan(&lag, &leases, &retries))
	if lag+leases+retries > 0 {
		fail("%s has about %d events, %d leases and %d retries left", name, lag, leases, retries)
	}
}

// transacting writes the same effects, each in its own transaction.
func (d *database) transacting(ctx context.Context, n, connections int) side {
	crew := d.crew(ctx, connections, nil, nil)
	return d.withEffects(n, func(ctx context.Context) float64 {
		return crew.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) int {
			share := crew.share(n, i)
			for k := range share {
				check(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, effectSQL, k, []byte(payload))
					return err
				}))
			}
			return share
		})
	})
}

// withEffects removes all effects before the work, and checks after it that each
// event has one effect.
func (d *database) withEffects(n int, work side) side {
	return func(ctx context.Context) float64 {
		d.exec(ctx, "truncate bare.effects")
		speed := work(ctx)
		d.checkEffects(ctx, n)
		return speed
	}
}

// checkEffects checks that each of n events or jobs has had its effect once.
func (d *database) checkEffects(ctx context.Context, n int) {
	expect("effects", d.count(ctx, "bare.effects"), n)
}
