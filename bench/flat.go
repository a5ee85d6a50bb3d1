package main

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
)

// flat is a rate of events, each published by a transaction of its own, that servers share
// and that readers of the broker behind them receive.
type flat struct{ rate, servers, readers int }

const flatFormat = "%d/s, %d servers, %d readers"

func (f flat) String() string { return fmt.Sprintf(flatFormat, f.rate, f.servers, f.readers) }

// flatRows compare what each event costs the publishers' Postgres: on several servers with
// what it costs on one at the same rate of all together, and with many readers of the broker
// with one. Other work on the machine hardly changes that.
func flatRows() (all []row) {
	beside := func(s *sitting, work, peer string, most float64, many, one flat) {
		for i, r := range []row{
			{work: "processor time of an event", target: atMost(most), unit: " µs", ours: "of all processes of the publishers' Postgres"},
			{work: "WAL of an event", target: atMost(most), unit: " B", ours: "bytes of the publishers' write-ahead logs"},
			{work: "rate", unit: "/s", ours: "events published"},
		} {
			r.work, r.peer = work+", "+r.work, peer
			all = append(all, s.row(r, i, many.String(), one.String()))
		}
	}
	for _, path := range []string{"", ", each with a relay"} {
		s := flatSitting("publishers"+path, path != "")
		for _, n := range []int{2, 4, 8} {
			beside(s, fmt.Sprintf("publish at 400/s on %d servers%s, beside one", n, path), "one server", 1.1, flat{400, n, 0}, flat{400, 1, 0})
		}
		// The same rate for each server tells what a server costs because there are others.
		beside(s, fmt.Sprintf("publish at 400/s on 8 servers%s, beside 50/s on one", path), "one server", 1.1, flat{400, 8, 0}, flat{50, 1, 0})
		if path == "" {
			beside(s, "publish at 2,000/s on 8 servers, beside one", "one server", 1.1, flat{2000, 8, 0}, flat{2000, 1, 0})
		}
	}
	s := flatSitting("readers of the broker", true)
	beside(s, "publish at 100/s, a relay, 50 readers of JetStream beside one", "one reader", 1.05, flat{100, 1, 50}, flat{100, 1, 1})
	return all
}

func flatSitting(name string, relayed bool) *sitting {
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) measure {
			var f flat
			must(fmt.Sscanf(system, flatFormat, &f.rate, &f.servers, &f.readers))
			return b.openPublishers(ctx, f.servers, relayed).atRate(ctx, f, b.sustain/6)
		},
	}
}

// publishers are logs, each on a server of its own, and JetStream if they have relays.
type publishers struct {
	logs    []*database
	broker  string
	arrived atomic.Pointer[counter] // of the events that relays write and readers receive
}

// openPublishers returns the publishers of the sitting, with so many servers or more.
func (b *bench) openPublishers(ctx context.Context, servers int, relayed bool) *publishers {
	if b.publishers == nil {
		b.publishers = &publishers{}
		if relayed {
			h := b.newHost()
			b.publishers.broker = hosted(func() *testnats.Server { return testnats.Start(h) }).URL
		}
	}
	p, settings := b.publishers, maps.Clone(serverSettings)
	settings["shared_buffers"] = "64MB"
	settings["checkpoint_timeout"] = "1h" // a checkpoint would be in the rounds of some servers only
	for len(p.logs) < servers {
		p.logs = append(p.logs, b.startServer(ctx, settings).newDatabase(ctx))
		if relayed {
			p.relay(ctx, b, len(p.logs)-1)
		}
	}
	return p
}

// relay relays a log, by a process that does its upkeep too. It returns when an event has
// arrived.
func (p *publishers) relay(ctx context.Context, b *bench, i int) {
	d := p.logs[i]
	d.stopUpkeep()
	sink := must(nats.Open(ctx, p.broker, nats.Config{Prefix: fmt.Sprintf("log-%d", i), Logger: quiet}))
	ph := d.client(ctx, posthorn.Config{})
	ph.Relay("bench", posthorn.RelayConfig{}, &countedSink{Sink: sink, written: func() { p.arrived.Load().add() }})
	p.arrived.Store(newCounter(1))
	stop := inBackground(ctx, ph)
	b.atEnd(func() {
		_ = caught(stop)
		ph.Close()
		_ = sink.Close()
	})
	d.exec(ctx, publishOneSQL, eventType, payload)
	p.arrived.Load().wait(ctx)
}

// atRate publishes for some time. It returns the microseconds of processor time and the
// bytes of WAL of each event, and the events in a second.
func (p *publishers) atRate(ctx context.Context, f flat, during time.Duration) measure {
	logs, n, c := p.logs[:f.servers], max(int(during.Seconds()*float64(f.rate)), 100), make(crew, senders)
	for i := range c {
		c[i] = logs[i%len(logs)].connect(ctx, nil)
	}
	c.prepare(ctx, statements{"insert": publishOneSQL})
	return func(ctx context.Context) []float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		defer p.read(ctx, f.readers)()
		var speed, wal float64
		work := func() { speed = c.publishAt(ctx, n, f.rate) }
		if p.broker != "" {
			publish, arrived := work, newCounter(n*(1+f.readers))
			p.arrived.Store(arrived)
			work = func() { publish(); arrived.wait(ctx) }
		}
		for _, d := range logs {
			inner := work
			work = func() { wal += d.wal(ctx, inner) }
		}
		before := serversTime(ctx, logs)
		work()
		return []float64{perItem(serversTime(ctx, logs)-before, n), wal / float64(n), speed}
	}
}

// publishAt publishes n events at a rate, and returns the events in a second.
func (c crew) publishAt(ctx context.Context, n, rate int) float64 {
	start, every := time.Now(), time.Second/time.Duration(rate)
	return c.run(ctx, n, func(ctx context.Context, i int, conn *pgx.Conn) int {
		parameters := messages(conn, 1, true)
		for k := range c.share(n, i) {
			sleep(ctx, time.Until(start.Add(time.Duration(k*len(c)+i)*every)))
			execPrepared(ctx, conn, "insert", parameters...)
		}
		return c.share(n, i)
	})
}

// serversTime is the processor time of all processes of the databases' servers.
func serversTime(ctx context.Context, all []*database) (total time.Duration) {
	for _, d := range all {
		total += familyTime(d.server.postmaster(ctx))
	}
	return total
}

// read lets each reader receive, on a connection of its own, the events that relays write
// from now on.
func (p *publishers) read(ctx context.Context, readers int) (end func()) {
	conns := make([]*natsgo.Conn, readers)
	for i := range conns {
		conns[i] = must(natsgo.Connect(p.broker))
		js := must(jetstream.New(conns[i]))
		for name := range js.StreamNames(ctx).Name() {
			must(must(js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
				DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
			})).Consume(func(jetstream.Msg) { p.arrived.Load().add() }))
		}
	}
	return func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
}
