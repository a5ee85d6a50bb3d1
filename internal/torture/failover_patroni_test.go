package torture

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testpg"
)

// patroniPart is the failover part on servers that Patroni runs. It notices by itself that the primary
// is gone, and clients know all three addresses and nothing else.
type patroniPart struct {
	*failoverPart
	cluster *testpg.Patroni
	// The number of failovers is the timeline. One that no fault asked for, since a busy machine renewed the lock of
	// the primary too late, is a crash since the cluster was last seen whole.
	timeline int
	whole    moment
}

func (p *patroniPart) load() load {
	l := p.failoverPart.load()
	if l.kills = 1; p.alone() {
		l.kills = minKills
	}
	return l
}

func (p *patroniPart) startDatabase() *database {
	p.cluster = testpg.StartPatroni(p.t, serverSettings)
	d := &database{run: p.run}
	for i := range p.cluster.Members {
		d.orders = append(d.orders, p.cluster.URLFrom(i))
	}
	d.clients = d.orders[0]
	leader, timeline := p.cluster.AwaitWhole(p.t)
	d.url, p.timeline, p.whole = leader.URL(), timeline, p.record.now()
	d.prepare()
	return d
}

func (p *patroniPart) start() {
	p.recovered = map[string][]time.Duration{}
	p.startClients()
}

// faults are in an order that the seed determines, first one that is a failover.
func (p *patroniPart) faults() []fault {
	failovers := []fault{
		{"primary and its Patroni die", func(int) { p.dies() }},
		{"primary and its Patroni hang", func(int) { p.hangs() }},
		{"switchover", func(int) { p.switchover() }},
	}
	if p.cluster.CanBeCut() {
		failovers = append(failovers, fault{"primary is cut off", func(int) { p.isCut() }})
	}
	rng := random(p.seed, -1) // the same for each call
	rng.Shuffle(len(failovers), func(i, j int) { failovers[i], failovers[j] = failovers[j], failovers[i] })
	return append(failovers, fault{"etcd's leader dies", func(int) { p.etcdDies() }})
}

func (p *patroniPart) dies() {
	primary := p.awaitWhole()
	began, over := time.Now(), p.record.crashed()
	primary.Kill()
	p.failsOver("dies", primary, began)
	over()
	primary.Start(p.t)
	p.awaitWhole()
}

// hangs stops the primary with its Patroni, and lets it go on after the failover. Its Patroni goes on
// later, so that clients meet an old primary that takes writes.
func (p *patroniPart) hangs() {
	primary := p.awaitWhole()
	began, over := time.Now(), p.record.crashed()
	p.publishBeside(primary)
	primary.Pause()
	p.failsOver("hangs", primary, began)
	primary.ResumeServer()
	p.more("more is published beside the old primary")
	primary.ResumePatroni()
	p.awaitWhole()
	over()
}

// isCut cuts the primary, its Patroni and its member of etcd from all others. A client beside it reaches it.
func (p *patroniPart) isCut() {
	primary := p.awaitWhole()
	began, over := time.Now(), p.record.crashed()
	p.publishBeside(primary)
	primary.Cut(p.t)
	p.failsOver("is cut off", primary, began)
	p.more("more is published beside the primary that is cut off")
	primary.Mend(p.t)
	p.awaitWhole()
	over()
}

// publishBeside publishes on a server as long as it keeps the connection, whatever it is cut from.
func (p *patroniPart) publishBeside(primary *testpg.Member) {
	publisher := p.newPublisher([]string{"default"}, logStreams)
	conn, err := pgx.Connect(p.ctx, primary.SocketURL())
	if err != nil {
		p.t.Fatal(err)
	}
	publisher.conn = conn
	p.clients.Go(func() {
		defer publisher.forget()
		for publisher.conn == conn && !conn.IsClosed() && pause(p.publishing, upTo(publisher.rng, p.load().pace)) {
			publisher.once(p.ctx)
		}
	})
}

func (p *patroniPart) switchover() {
	primary := p.awaitWhole()
	began, over := time.Now(), p.record.crashed()
	p.cluster.Switchover(p.t, primary)
	p.failsOver("switchover", primary, began)
	over()
	p.awaitWhole()
}

// etcdDies lets the primary stay: another member of etcd leads before Patroni gives up.
func (p *patroniPart) etcdDies() {
	p.awaitWhole()
	p.cluster.Etcd.ReplaceLeader(p.t)
	p.more("more is published with another leader of etcd")
	p.awaitWhole()
}

// failsOver waits until another server is the primary and clients work again.
func (p *patroniPart) failsOver(how string, old *testpg.Member, began time.Time) {
	primary := p.cluster.AwaitOther(p.t, old)
	p.database.url = primary.URL()
	p.timeline++
	p.limit.Store(p.record.acked.Load() + int64(p.load().short))
	p.recovers(how+", first publish", began, &p.record.acked)
	p.recovers(how+", first handled", began, &p.record.done)
	p.listed(how+", lost events listed", began)
}

// more waits until more is published.
func (p *patroniPart) more(condition string) {
	goal := p.record.acked.Load() + int64(p.load().short/2)
	p.limit.Store(goal)
	p.await(condition, func() bool { return p.record.acked.Load() >= goal })
}

// awaitWhole waits until the primary has its standbys, and returns it.
func (p *patroniPart) awaitWhole() *testpg.Member {
	now := p.record.now()
	primary, timeline := p.cluster.AwaitWhole(p.t)
	if timeline > p.timeline {
		p.t.Logf("%s: Patroni has failed over by itself, to timeline %d", time.Now().UTC(), timeline)
		p.record.crashedSince(p.whole)()
	}
	p.database.url, p.timeline, p.whole = primary.URL(), timeline, now
	return primary
}

func (p *patroniPart) check() (string, *findings) {
	if !p.t.Failed() {
		p.awaitWhole()
	}
	return p.failoverPart.check()
}
