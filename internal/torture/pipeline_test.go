package torture

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/tests3"
)

// pipelinePart runs the pipeline behind the log: relays to Redis and JetStream,
// archivers, and the consumers of the two brokers. The faults kill these processes
// and servers in turn.
type pipelinePart struct {
	*run
	redis     *testredis.Sentinel
	nats      *testnats.Cluster
	store     *tests3.Server
	servers   setup  // the URLs of the brokers and of the archive
	consumers string // URL of the consumers' database
	observer  *client
	places    []*place
	streams   map[string]bool // with events in the log
	stored    []string        // the messages of JetStream, as they were read last

	relays, archivers, redisReaders, natsReaders []*process
	processes                                    []*process // all of them
}

var pipelineStreams = []string{"orders", "stream:user:events", "payments", "mail {x}", "audit/log", "rare"}

func (p *pipelinePart) load() load {
	return load{publishers: 4, pace: 300 * time.Millisecond, short: 150, step: 50}
}

func (p *pipelinePart) publisher() func(context.Context) {
	publisher := p.newPublisher([]string{"default"}, pipelineStreams)
	p.t.Cleanup(publisher.forget)
	return publisher.once
}

func (p *pipelinePart) start() {
	p.startConsumers()
	p.redis = testredis.StartSentinel(p.t)
	p.nats = testnats.StartCluster(p.t, 3)
	p.store = tests3.Start(p.t)
	p.servers = setup{Redis: p.redis.URL(), NATS: p.nats.URL, Archive: p.store.URL()}
	p.relays = p.two("relay", p.database.url)
	p.archivers = p.two("archiver", p.database.url)
	p.redisReaders = p.two("redis reader", p.consumers)
	p.natsReaders = p.two("nats reader", p.consumers)
	p.places = []*place{
		{name: "Redis", ordered: true, read: p.readRedis},
		{name: "JetStream", ordered: true, read: p.readNATS},
		{name: "effects of Redis", once: true, read: p.readEffects("redis reader")},
		{name: "effects of JetStream", once: true, read: p.readEffects("nats reader")},
		{name: "archive", once: true, read: p.readArchive},
	}
	p.clients.Go(p.holdSnapshots)
}

// startConsumers makes the database of the consumers, and the client that looks whether all have all.
func (p *pipelinePart) startConsumers() {
	p.consumers = p.database.another("consumers")
	p.database.exec(p.consumers, "create table effects (reader text, event bigint)")
	p.database.exec(p.consumers, "update posthorn.log_origin set origin = gen_random_uuid()") // otherwise a copied database has the same origin
	p.observer = p.newClient()
	p.t.Cleanup(p.observer.forget)
}

// two starts two processes of a role.
func (p *pipelinePart) two(role, database string) (processes []*process) {
	for range 2 {
		s := p.servers
		s.Role, s.Database = role, database
		processes = append(processes, p.startProcess(s, p.hear))
	}
	p.processes = append(p.processes, processes...)
	return processes
}

// hear records a line that a process has printed.
func (p *pipelinePart) hear(line string) {
	if strings.HasPrefix(line, "handled ") {
		p.record.done.Add(1)
		return
	}
	p.t.Log(line) // an error; another process takes over
}

func (p *pipelinePart) faults() []fault {
	relay, archiver := killProcess("relay", p.relays), killProcess("archiver", p.archivers)
	return []fault{
		relay, p.redisMaster(), archiver, killProcess("consumer of Redis", p.redisReaders),
		p.natsNode(), killProcess("consumer of NATS", p.natsReaders), p.database.crash(), relay, p.connections(5), archiver,
	}
}

// redisMaster kills the master, waits until a replica has taken over, and restarts
// the master as a replica.
func (p *pipelinePart) redisMaster() fault {
	return fault{"master of Redis", func(int) {
		master := p.redis.Current()
		master.Kill()
		await.True(p.t, "a replica of Redis takes over", func() bool { return p.redis.Current() != master })
		master.Restart()
		p.redis.AwaitReady()
	}}
}

func (p *pipelinePart) natsNode() fault {
	rng := p.random()
	return fault{"node of NATS", func(round int) {
		node := p.nats.Servers[round%len(p.nats.Servers)]
		node.Kill()
		pause(p.ctx, upTo(rng, 2*time.Second))
		node.Restart()
	}}
}

func (p *pipelinePart) left() (left []string, err error) {
	if err := p.observer.finishPrepared(p.ctx); err != nil {
		return nil, err
	}
	delayed, published := 0, 0
	err = p.observer.conn.QueryRow(p.ctx, "select (select count(*) from posthorn.delayed), (select count(*) from posthorn.events)").Scan(&delayed, &published)
	if err != nil {
		return nil, err
	}
	if delayed > 0 {
		return []string{fmt.Sprintf("%d delayed events", delayed)}, nil
	}
	if p.streams == nil { // the log does not change any more
		events, err := readEvents(p.ctx, p.observer.conn)
		if err != nil {
			return nil, err
		}
		p.streams = map[string]bool{}
		for _, e := range events {
			p.streams[e.Stream] = true
		}
	}
	for _, place := range p.places {
		if place.distinct < published {
			if err := place.look(p.ctx); err != nil {
				return nil, err
			}
		}
		if place.distinct < published {
			left = append(left, fmt.Sprintf("%s has %d of %d events", place, place.distinct, published))
		}
	}
	return left, nil
}

func newPipelineChecker(r *record, events map[int64]event) *checker {
	return newChecker(r, events, newFindings(lost, invented, doubled, misordered))
}

func (p *pipelinePart) check() (string, *findings) {
	retire(p.processes)
	var events map[int64]event
	p.database.with(p.database.url, func(ctx context.Context, conn *pgx.Conn) (err error) {
		events, err = readEvents(ctx, conn)
		return err
	})
	c := newPipelineChecker(p.record, events)
	c.checkLog()
	counts := p.record.published(len(events))
	for _, place := range p.places {
		// A cluster may return fewer entries for a moment after a node has rejoined.
		await.True(p.t, place.name+" can be read", func() bool {
			err := place.look(p.t.Context())
			return p.t.Failed() || err == nil && place.distinct >= len(events)
		})
		c.checkPlace(place)
		counts += fmt.Sprintf("; %s: %d repeats", place, len(place.ids)-place.distinct)
	}
	if len(c.violations) > 0 {
		p.t.Log(strings.Join(p.stored, "\n"))
	}
	return counts, c.findings
}
