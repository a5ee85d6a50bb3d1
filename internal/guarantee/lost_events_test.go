package guarantee

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

// broker is a broker of a test, with the number of entries of the streams default and other.
type broker struct {
	sink interface {
		posthorn.Sink
		io.Closer
	}
	length func() int64
}

// openBroker opens a sink of a broker of a kind.
func openBroker(t *testing.T, kind string) broker {
	t.Helper()
	var b broker
	var err error
	if kind == "redis" {
		server := testredis.NewDatabase(t)
		b.sink, err = redis.Open(t.Context(), server.URL(), redis.Config{})
		b.length = func() int64 {
			return server.Client.XLen(t.Context(), "default").Val() + server.Client.XLen(t.Context(), "other").Val()
		}
	} else {
		server := testnats.NewAccount(t)
		_, js := testnats.Connect(t, server)
		b.sink, err = nats.Open(t.Context(), server.URL, nats.Config{Logger: slog.New(slog.DiscardHandler)})
		b.length = func() (n int64) {
			for _, stream := range []string{"default", "other"} {
				if s, err := js.Stream(t.Context(), "posthorn+default+"+stream); err == nil {
					n += int64(s.CachedInfo().State.Msgs)
				}
			}
			return n
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.sink.Close() })
	return b
}

func (b broker) await(t *testing.T, n int64) {
	t.Helper()
	await.True(t, fmt.Sprintf("the broker has %d entries", n), func() bool { return b.length() >= n })
}

// A relay lives through a failover that loses events. The list of lost events has all that
// its broker has and the log has not, also of a stream that the log has forgotten, and no
// other. They come back once, and the broker does not get them again.
//
// Each has a cluster of its own: a process that has seen a failover refuses the old primary.
func TestFailoverLosesEvents(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis", "nats"} {
		t.Run(kind, func(t *testing.T) { eventsAreLost(t, kind) })
	}
}

// startBehindProxy starts a server, and a proxy that can be led to the one that takes over. through is the address of the
// database behind the proxy.
func startBehindProxy(t *testing.T) (own *ownDatabase, proxy *testpg.Proxy, through string) {
	t.Helper()
	server := startServer(t)
	server.migrate(t)
	own = server.database(t)
	own.session().exec("select posthorn.tend()")
	proxy = testpg.NewProxy(t, own.url())
	address, err := url.Parse(own.url())
	if err != nil {
		t.Fatal(err)
	}
	address.Host = proxy.Address()
	return own, proxy, address.String()
}

func eventsAreLost(t *testing.T, kind string) {
	own, proxy, through := startBehindProxy(t)
	s := own.session()
	b := openBroker(t, kind)
	client := testworld.OpenClient(t, posthorn.Config{DatabaseURL: through})
	client.Relay("out", posthorn.RelayConfig{}, b.sink)
	testworld.Run(t, client)
	s.publishMany(30)
	b.await(t, 30)
	s.exec("select posthorn.define_namespace('operations')")
	s.refused("PH001", "update posthorn.config set value = 'nowhere' where key = 'failover_events'")
	s.exec("update posthorn.config set value = 'operations' where key = 'failover_events'")

	late := own.session() // an id that is not after the others, and lost nevertheless
	late.exec("begin")
	lost := []int64{late.publish()}
	s.publishMany(5)
	b.await(t, 35)
	promoted := recoverElsewhere(t, own, func() {
		late.exec("commit")
		for range 20 {
			lost = append(lost, s.publish())
		}
		lost = append(lost, value[int64](s, `select posthorn.publish('default', 'order.placed', '{"a": 1}', stream => 'other', key => 'k')`))
		b.await(t, 35+22)
	})
	s = promoted.session()
	s.await("select not pg_is_in_recovery()")
	s.publishMany(3) // before anything else
	proxy.Redirect(t, promoted.url())
	b.await(t, 35+22+3)

	equal(t, "lost events", column[int64](s, "select id from posthorn.list_lost_events('default', 1) order by id"), lost)
	equal(t, "the last one", value[string](s, "select concat_ws(' ', stream, type, key, payload->>'a', found_by) from posthorn.list_lost_events('default', 1) order by id desc limit 1"),
		"other order.placed k 1 relay out")
	equal(t, "events of failovers", column[string](s, `
		select concat_ws(' ', e.type, s.name, payload->'failover', payload->>'reason', payload->'timeline', payload->>'namespace', payload->>'relay',
			payload->'lost', payload->'failed')
		from posthorn.events e join posthorn.stream_names s on s.id = e.stream_id
		where e.namespace_id = posthorn.namespace_id('operations') order by e.id`),
		[]string{"posthorn.failover posthorn 1 promotion 2", "posthorn.failover.compared posthorn 1 default out 22 false"})
	equal(t, "up to when events may be lost", value[bool](s, `
		select (e.payload->>'lost_after')::timestamptz is not distinct from f.replayed_at and (e.payload->>'at')::timestamptz = f.at
		from posthorn.events e, posthorn.list_failovers('default') f where e.type = 'posthorn.failover'`), true)
	equal(t, "failovers", column[string](s, "select concat_ws(' ', id, reason, timeline, lost, brought_back, looked, not_looked) from posthorn.list_failovers('default')"),
		[]string{"1 promotion 2 22 0 {out} {}"})
	equal(t, "seen without the stream other", value[int64](s, "select lost from posthorn.list_failovers('default', '{other}')"), 21)
	equal(t, "listed without the stream other", value[int64](s, "select count(*) from posthorn.list_lost_events('default', 1, '{other}')"), 21)
	found := value[string](s, "select found from posthorn.doctor() where \"check\" = 'failovers'")
	if !strings.Contains(found, "to timeline 2") || !strings.Contains(found, "22 events that the log has not") {
		t.Errorf("the doctor says %q", found)
	}

	equal(t, "brought back without the stream other", value[int64](s, "select posthorn.bring_back('default', 1, '{other}')"), 21)
	equal(t, "brought back", value[int64](s, "select posthorn.bring_back('default', 1)"), 1)
	equal(t, "brought back again", value[int64](s, "select posthorn.bring_back('default', 1)"), 0)
	equal(t, "their origins", column[int64](s, `
		select (metadata->'posthorn_origin'->>'id')::bigint from posthorn.events
		where metadata::text like '{"posthorn_origin"%' and metadata->'posthorn_origin'->>'log' = posthorn.origin()::text order by 1`), lost)
	s.publishMany(1)
	b.await(t, 35+22+3+1)
	equal(t, "entries of the broker", b.length(), int64(35+22+3+1))
}

// After a failover that loses nothing, the relay says so.
func TestFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.migrate(t)
	own := server.database(t)
	s := own.session()
	s.exec("select posthorn.tend()")
	b := openBroker(t, "redis")
	client := testworld.OpenClient(t, posthorn.Config{DatabaseURL: own.url()})
	client.Relay("out", posthorn.RelayConfig{}, b.sink)
	testworld.Run(t, client)
	s.publishMany(30)
	b.await(t, 30)
	own.crash()
	s = own.session()
	s.publishMany(3)
	b.await(t, 33)
	equal(t, "failovers", column[string](s, "select concat_ws(' ', id, reason, lost, looked) from posthorn.list_failovers('default')"), []string{"1 crash 0 {out}"})
	found := value[string](s, "select level || ': ' || found from posthorn.doctor() where \"check\" = 'failovers'")
	if !strings.HasPrefix(found, "ok: crash at") || !strings.HasSuffix(found, "nothing was lost that a relay or an archive knows of") {
		t.Errorf("the doctor says %q", found)
	}
}

// Another program has written entries under ids of the log that the log would have refused. Each call that leaves some out says
// how many.
func TestRefusedEntriesAreCounted(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.tend()")
	s.exec("insert into posthorn.moves (next_id, reason, last_id, timeline) values (9000000000000000, 'crash', 1, 1)")
	s.exec("select posthorn.define_archive('default', 'cold', 'file:///cold')")
	var warnings []string
	s.notices(func(message string) { warnings = append(warnings, message) })
	const entries = `'{s, s, s}', array[$1::bigint, $1::bigint + 1, $1::bigint + 2], array['e', E'a\nb', E'a\nb'], '{"{}", "{}", "{}"}'::json[], array[now(), now(), now()])`
	equal(t, "kept of an archive", value[[]int64](s, "select posthorn.note_archived_events((select a.id from posthorn.archives a), "+entries, 4711), []int64{4711})
	equal(t, "kept of an import", value[int64](s, "select lost from posthorn.note_imported_events('default', 'reports', "+entries, 5711), 1)
	s.exec(`update posthorn.lost_events set type = E'a\nb' where id = 5711`) // it was kept by an earlier build
	equal(t, "brought back", value[int64](s, "select posthorn.bring_back('default', 1)"), 1)
	equal(t, "warnings", warnings, []string{
		"archive cold: entries under ids of the log that could not have been published, and are left out of the lost events: 2",
		"import reports: entries under ids of the log that could not have been published, and are left out of the lost events: 2",
		"lost events that could not have been published, and are not brought back: 1",
	})
}

// An entry is checked once, which reads its whole payload.
func TestEntriesAreCheckedOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.tend()")
	s.exec("insert into posthorn.moves (next_id, reason, last_id, timeline) values (9000000000000000, 'crash', 1, 1)")
	s.exec(`create sequence public.checks;
		create or replace function posthorn.is_refused_event(stream text, type text, key text, payload json, tags text[], metadata json)
		returns boolean language plpgsql as $$ begin perform nextval('public.checks'); return type <> 'e'; end $$`)
	s.exec(`select posthorn.note_imported_events('default', 'reports', '{s, s, s}', '{1, 2, 3}', '{e, other, e}', '{"{}", "{}", "{}"}'::json[], array[now(), now(), now()])`)
	equal(t, "lost events", column[int64](s, "select id from posthorn.lost_events order by id"), []int64{1, 3})
	equal(t, "checks", value[int64](s, "select last_value from public.checks"), 3)
}
