package torture

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testredis"
)

// failoverPart is the log part on a primary with two standbys. At each fault the primary
// dies, and a standby takes over. Two processes of relays to Redis and NATS, an import in a database
// elsewhere, an archive, a webhook, and a reader that keeps its cursor see the log besides the groups.
// Some publishers use HTTP. See startPlaces.
//
// A run of this part alone has more: the first events after a promotion are published before any other
// client connects, and a primary that has hung comes back as the old primary, with an address that clients try.
//
// Commits wait for a standby. In a lossy part they do not, and the standby that takes over
// has not received the last ones. Events that it lacks are lost; those that it has are held to the
// same promises, and no id means two events. The list of lost events has all that the brokers and the
// archive have, and no other.
type failoverPart struct {
	*logPart
	servers   []*testpg.Server // the primary first
	redis     *testredis.Server
	consumers string // URL of the importing database
	api       *api   // nil without a server
	started   int    // publishers
	processes []*process
	places    []*place
	sources   []*place        // those in which Posthorn looks for lost events
	log       map[int64]event // at the end, of the namespace of the relay and the reader
	read      []handed        // by the reader
	received  []handed        // by the receiver of the webhook
	recovered map[string][]time.Duration
	losses    []loss // one of each failover of a lossy part
	cancels   bool   // each failover comes after waits for a standby that were cancelled
}

// loss is the time whose acknowledged events a failover may lose: from when the standby that takes
// over has received all events before it, until clients use it.
type loss struct{ from, to moment }

func lossyFailover(r *run) part {
	r.record.forgets = true
	return &failoverPart{logPart: &logPart{run: r}}
}

// cancelledWaits is a failover part without a standby before each failover, where waits for one are cancelled. Others see
// events of these transactions, and the failover may lose them. Their publishers have an error that says so.
func cancelledWaits(r *run) part {
	r.record.forgets = true
	return &failoverPart{logPart: &logPart{run: r}, cancels: true}
}

// lossy reports whether commits do not wait for a standby.
func (f *failoverPart) lossy() bool { return f.record.forgets && !f.cancels }

var serverNames = []string{"a", "b", "c"}

func (f *failoverPart) load() load {
	return load{publishers: 8, pace: 30 * time.Millisecond, short: 100, step: 100, kills: 3}
}

func (f *failoverPart) start() {
	f.recovered = map[string][]time.Duration{}
	f.servers = []*testpg.Server{f.database.server}
	for _, name := range serverNames[1:] {
		f.servers = append(f.servers, f.servers[0].Standby(f.t, name))
	}
	for i := range f.servers {
		f.database.orders = append(f.database.orders, f.addresses(slices.Concat(f.servers[i:], f.servers[:i])))
	}
	f.database.clients = f.database.orders[0]
	if !f.lossy() {
		for _, s := range f.servers {
			s.SetSynchronous(f.t, "ANY 1 (*)")
		}
	}
	f.startClients()
}

func (f *failoverPart) startClients() {
	f.startPlaces()
	f.logPart.start()
	f.clients.Go(f.follow)
}

// addresses is the URL with the addresses of all servers, in their order, of which clients choose
// the primary.
func (f *failoverPart) addresses(servers []*testpg.Server) string {
	u, err := url.Parse(f.database.url)
	if err != nil {
		f.t.Fatal(err)
	}
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", s.Port()))
	}
	u.Host = strings.Join(hosts, ",")
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

func (f *failoverPart) faults() []fault {
	dies := func(primary *testpg.Server) { _ = primary.Kill() }
	hangs := func(primary *testpg.Server) { primary.Pause(f.t) }
	return []fault{
		{"primary dies", func(int) { f.failover("dies", dies) }},
		{"primary hangs", func(int) { f.failover("hangs", hangs) }},
		{"two primaries die", func(int) { f.failover("dies", dies); f.failover("dies", dies) }},
	}
}

// failover ends the primary and promotes a standby. Commits of the new primary wait for the other
// standby, which follows it at once. When clients work again, the old primary becomes a standby.
func (f *failoverPart) failover(how string, end func(primary *testpg.Server)) {
	primary := f.servers[0]
	next := f.standby()
	over := f.record.crashed()
	began := time.Now()
	end(primary)
	if !f.record.forgets {
		next = f.furthest()
	}
	if f.alone() {
		f.publishFirst(next)
	}
	next.Promote(f.t)
	f.database.server, f.database.url = next, next.URL()
	over()
	others := slices.DeleteFunc(f.servers, func(s *testpg.Server) bool { return s == next })
	if !f.lossy() {
		_ = others[1].Kill()
		others[1].Follow(f.t, next, serverNames[2])
	}
	f.limit.Store(f.record.acked.Load() + int64(f.load().short))
	f.recovers(how+", first publish", began, &f.record.acked)
	f.recovers(how+", first handled", began, &f.record.done)
	f.listed(how+", lost events listed", began)
	_ = primary.Kill() // it may hang
	if f.lossy() {
		f.losses[len(f.losses)-1].to = f.record.now()
	}
	if how == "hangs" && f.alone() {
		f.comesBack(primary)
	}
	primary.Rejoin(f.t, next, serverNames[1])
	if f.lossy() { // it may have more than the new primary
		_ = others[1].Kill()
		others[1].Rejoin(f.t, next, serverNames[2])
	}
	f.servers = append([]*testpg.Server{next}, others...)
}

// publishFirst publishes on a standby as soon as it is promoted, on a connection that is older.
func (f *failoverPart) publishFirst(standby *testpg.Server) {
	p := f.newPublisher([]string{"default"}, logStreams)
	conn, err := pgx.Connect(f.ctx, standby.URL())
	if err != nil {
		f.t.Fatal(err)
	}
	p.conn = conn
	f.clients.Go(func() {
		defer p.forget()
		for recovers := true; recovers; {
			if err := conn.QueryRow(f.ctx, "select pg_is_in_recovery()").Scan(&recovers); p.broken(f.ctx, err) {
				return // another client has ended the session
			}
		}
		for range 20 {
			p.once(f.ctx)
		}
	})
}

// comesBack starts an old primary again, and stops it when clients have published more: none of it
// there.
func (f *failoverPart) comesBack(old *testpg.Server) {
	old.Restart(f.t)
	goal := f.record.acked.Load() + int64(f.load().short/2)
	f.limit.Store(goal)
	f.await("more is published beside the old primary", func() bool { return f.record.acked.Load() >= goal })
	_ = old.Kill()
}

// standby returns the standby that takes over. In a lossy part it has stopped to receive
// before more was published.
func (f *failoverPart) standby() *testpg.Server {
	switch behind := f.servers[1]; {
	case f.cancels:
		f.cancelWaits(behind)
		return behind
	case !f.record.forgets:
		return f.furthest()
	}
	behind := f.servers[1]
	f.losses = append(f.losses, loss{f.record.now(), math.MaxInt64})
	behind.AwaitReceived(f.t, f.servers[0])
	behind.Detach(f.t)
	goal := f.record.acked.Load() + 50
	f.limit.Store(goal + int64(f.load().short))
	f.await("the primary is ahead of the standby", func() bool { return f.record.acked.Load() >= goal })
	return behind
}

// cancelWaits takes both standbys away, first the one that does not take over. Until commits have no
// standby all that one has confirmed is with the other. Then it cancels the waits of commits.
func (f *failoverPart) cancelWaits(last *testpg.Server) {
	primary := f.servers[0]
	_ = f.servers[2].Kill()
	last.AwaitReceived(f.t, primary)
	last.Detach(f.t)
	goal := f.unconfirmed.Load() + 20
	f.limit.Store(f.record.acked.Load() + int64(f.load().short))
	f.await("publishers are told of cancelled waits", func() bool {
		primary.CancelWaits(f.t)
		return f.unconfirmed.Load() >= goal
	})
}

// furthest returns the standby that has received most.
func (f *failoverPart) furthest() *testpg.Server {
	return slices.MaxFunc(f.servers[1:], func(a, b *testpg.Server) int {
		return cmp.Compare(a.Received(f.t), b.Received(f.t))
	})
}

// recovers waits until a count grows, and notes how long that took since a fault began.
func (f *failoverPart) recovers(what string, began time.Time, count *atomic.Int64) {
	before := count.Load()
	f.noted(what, began, func() bool { return count.Load() > before })
}

// noted waits for a condition, and notes how long that took since a fault began.
func (f *failoverPart) noted(what string, began time.Time, holds func() bool) {
	defer func() {
		if f.t.Failed() {
			f.t.Log(strings.Join(f.database.sessions(), "\n"))
		}
	}()
	f.await(what, holds)
	took := time.Since(began)
	f.recovered[what] = append(f.recovered[what], took)
	f.t.Logf("%s: %s after %s", time.Now().UTC(), what, took)
}

// follow reads the log without a group, and goes on at its cursor with a new reader after
// some events.
func (f *failoverPart) follow() {
	rng := f.random()
	ph, err := posthorn.Open(f.ctx, posthorn.Config{DatabaseURL: f.database.clients, Logger: quiet()})
	if err != nil {
		f.fail(err)
		return
	}
	defer ph.Close()
	config := posthorn.ReadConfig{Follow: true}
	for f.ctx.Err() == nil {
		r := ph.Read(config)
		for e, err := range r.Events(f.ctx) {
			if err != nil {
				f.fail(err)
				break
			}
			uid, err := uidIn(e.Payload)
			if err != nil {
				f.fail(err)
				break
			}
			f.saw(&f.read, handed{id: e.ID, uid: uid})
			if rng.IntN(100) == 0 {
				break
			}
		}
		config.Cursor = r.Cursor()
	}
}

func (f *failoverPart) left() ([]string, error) {
	left, err := f.logPart.left()
	if err != nil || len(left) > 0 {
		return left, err
	}
	if f.log == nil { // the log does not change any more
		events, err := readEvents(f.ctx, f.observer.conn)
		if err != nil {
			return nil, err
		}
		f.log = map[int64]event{}
		for id, e := range events {
			if e.Namespace == "default" { // the relay and the reader are of this namespace
				f.log[id] = e
			}
		}
	}
	for _, place := range f.places {
		if place.missing(f.log) > 0 {
			if err := place.look(f.ctx); err != nil {
				return nil, err
			}
		}
		if n := place.missing(f.log); n > 0 {
			left = append(left, fmt.Sprintf("%s lacks %d of %d events", place, n, len(f.log)))
		}
	}
	return left, nil
}

const twoMeanings = "id of two events"

func (f *failoverPart) check() (string, *findings) {
	retire(f.processes)
	var t truth
	f.database.with(f.database.url, t.read)
	for _, place := range f.places {
		if err := place.look(f.t.Context()); err != nil {
			f.t.Error(err)
		}
	}
	meanings := f.checkMeanings(t.events)
	gone := 0
	if f.record.forgets {
		gone = f.leaveOut(t.events)
	}
	counts, found := f.logPart.check()
	maps.Copy(found.violations, meanings.violations)
	found.kinds = append(found.kinds, twoMeanings)
	c := newChecker(f.record, f.log, found)
	seen := 0
	for _, place := range f.places {
		surplus := place.leaveOut(f.log)
		seen += surplus
		if surplus > 0 && !f.record.forgets {
			c.report(invented, "%s has %d events that are not in the log", place, surplus)
		}
		c.checkPlace(place)
		counts += fmt.Sprintf("; %s: %d repeats, %d lost events", place, len(place.ids)-place.distinct, surplus)
	}
	counts += f.checkList(c)
	if f.lossy() && gone == 0 {
		f.t.Error("no acknowledged event was lost, so this run shows nothing")
	}
	if f.cancels {
		counts += fmt.Sprintf("; unconfirmed %d", f.unconfirmed.Load())
		if seen == 0 {
			f.t.Error("no event was seen and lost, so this run shows nothing")
		}
	}
	for what, times := range f.recovered {
		slices.Sort(times)
		counts += fmt.Sprintf("; %s after %s to %s", what, times[0].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; acknowledged and lost %d", counts, gone), found
}

// checkMeanings checks that an id is one event, in the log and in each place that has seen it.
func (f *failoverPart) checkMeanings(events map[int64]event) *findings {
	found := newFindings(twoMeanings)
	first := map[int64]int64{}
	see := func(where string, id, uid int64) {
		if other, ok := first[id]; ok && other != uid {
			found.report(twoMeanings, "event %d is message %d for %s, and was message %d", id, uid, where, other)
		}
		first[id] = uid
	}
	for id, e := range events {
		see("the log", id, e.UID)
	}
	for _, tx := range f.record.transactions {
		for _, m := range tx.messages {
			if tx.outcome == committed && !m.delayed && m.dedup == "" {
				see("its publisher", m.id, m.uid)
			}
		}
	}
	for _, h := range f.record.handouts {
		for _, e := range h.events {
			see(h.group.String(), e.id, e.uid)
		}
	}
	for _, place := range f.places {
		for _, e := range place.entries {
			if e.uid != 0 {
				see(place.name, e.id, e.uid)
			}
		}
	}
	return found
}

// leaveOut takes the losses of failovers out of the record: transactions, as if their
// outcome were not known, and events of handouts. It returns the number of acknowledged
// events that are lost.
func (f *failoverPart) leaveOut(events map[int64]event) (gone int) {
	last := f.record.crashes[len(f.record.crashes)-1].to
	c := newChecker(f.record, events, newFindings(invented))
	mayBeLost := func(at moment) bool {
		return slices.ContainsFunc(f.losses, func(l loss) bool { return l.from <= at && at <= l.to })
	}
	for _, tx := range f.record.transactions {
		if tx.outcome == committed && (mayBeLost(tx.prepared) || mayBeLost(tx.ack)) && !slices.ContainsFunc(tx.messages, c.isOwn) {
			tx.outcome = inDoubt
			gone += len(tx.messages)
		}
	}
	for _, h := range f.record.handouts {
		if h.from < last {
			h.keep(func(e handed) bool { return events[e.id].UID == e.uid })
		}
	}
	return gone
}

// isOwn reports whether the log has a message, and not only an earlier one with its dedup key.
func (c *checker) isOwn(m *message) bool {
	_, ok := c.eventOf[m.uid]
	return ok
}

// keep keeps some of a handout's events, with their outcomes.
func (h *handout) keep(stays func(handed) bool) {
	var events []handed
	var outcomes []string
	for i, e := range h.events {
		if stays(e) {
			events = append(events, e)
			if i < len(h.outcomes) {
				outcomes = append(outcomes, h.outcomes[i])
			}
		}
	}
	h.events, h.outcomes = events, outcomes
}

// missing counts the events of a log that the place does not have.
func (p *place) missing(events map[int64]event) (n int) {
	has := map[int64]bool{}
	for _, id := range p.ids {
		has[id] = true
	}
	for id := range events {
		if !has[id] {
			n++
		}
	}
	return n
}

// leaveOut takes out the events that are not in the log, and returns how many these were.
func (p *place) leaveOut(events map[int64]event) int {
	surplus := map[int64]bool{}
	p.ids = slices.DeleteFunc(p.ids, func(id int64) bool {
		if _, ok := events[id]; !ok {
			surplus[id] = true
			return true
		}
		return false
	})
	p.distinct -= len(surplus)
	return len(surplus)
}
