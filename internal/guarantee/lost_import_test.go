package guarantee

import (
	"io"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/redis"
)

// A failover loses events that a database elsewhere has imported, and the broker has lost its
// data. The importing database has them all, as they were. They come back once, and that database
// does not get them again, whether or not the relay writes them.
func TestLostEventsAreFoundInAnImport(t *testing.T) {
	t.Parallel()
	for name, imported := range map[string]bool{"relay without imported events": false, "relay with imported events": true} {
		t.Run(name, func(t *testing.T) { importHasLostEvents(t, imported) })
	}
}

func importHasLostEvents(t *testing.T, imported bool) {
	own, proxy, through := startBehindProxy(t)
	s := own.session()
	b := testredis.NewDatabase(t)
	sink, err := redis.Open(t.Context(), b.URL(), redis.Config{})
	closeLater(t, sink, err)
	client := testworld.OpenClient(t, posthorn.Config{DatabaseURL: through})
	client.Relay("out", posthorn.RelayConfig{Imported: imported}, sink)
	testworld.Run(t, client)

	reports := posthorntest.Database(t)
	there := connect(t, reports)
	there.exec("update posthorn.log_origin set origin = gen_random_uuid()") // databases of tests are copies
	there.exec("select posthorn.define_namespace('shop')")
	there.exec("select posthorn.publish('shop', 'order.placed')")
	source, err := redis.OpenSource(t.Context(), b.URL(), redis.Config{})
	closeLater(t, source, err)
	importer := testworld.OpenClient(t, posthorn.Config{DatabaseURL: reports, Namespace: "shop"})
	importer.Import("in", posthorn.ImportConfig{}, source)
	testworld.Run(t, importer)
	has := func(n int) {
		t.Helper()
		there.await("select count(*) >= $1 from posthorn.events where metadata::text like '{\"posthorn_origin\"%'", n)
	}
	s.publishMany(30)
	has(30)

	var lost []int64
	promoted := recoverElsewhere(t, own, func() {
		for range 20 {
			lost = append(lost, s.publish())
		}
		lost = append(lost, value[int64](s, `select posthorn.publish('default', 'order.placed', '{"a": 1}', stream => 'o"}r', key => 'k', metadata => '{"m": "\"}"}')`))
		s.exec("select posthorn.publish_own('default', 'posthorn.webhook.disabled', '{}', 'posthorn', null)")
		lost = append(lost, value[int64](s, "select max(id) from posthorn.events"))
		has(30 + 22)
	})
	if err := b.Client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s = promoted.session()
	s.await("select not pg_is_in_recovery()")
	s.publishMany(3)
	proxy.Redirect(t, promoted.url())
	has(30 + 22 + 3)
	s.await("select lost = 0 and looked = '{out}' from posthorn.list_failovers('default')")

	s.exec("set role posthorn_admin")
	there.exec("set role posthorn_consumer")
	adm := admin.New(s.conn, "default")
	compare := func(want admin.ImportComparison) {
		t.Helper()
		found, err := adm.CompareImport(t.Context(), 1, admin.Importer{DB: there.conn, Namespace: "shop", Place: "reports"})
		if err != nil || found != want {
			t.Errorf("%+v, %v, want %+v", found, err, want)
		}
	}
	compare(admin.ImportComparison{Compared: 30 + 22, Lost: 22, Fresh: 22})
	compare(admin.ImportComparison{Compared: 30 + 22, Lost: 22})
	equal(t, "lost events", column[int64](s, "select id from posthorn.list_lost_events('default', 1) order by id"), lost)
	equal(t, "the last ones", column[string](s, `
		select concat_ws(' ', stream, type, key, payload, metadata, found_by) from posthorn.list_lost_events('default', 1) order by id desc limit 2`),
		[]string{`posthorn posthorn.webhook.disabled {} {} import reports`, `o"}r order.placed k {"a": 1} {"m": "\"}"} import reports`})
	found := value[string](s, "select found || advice from posthorn.doctor() where \"check\" = 'failovers'")
	if !strings.Contains(found, "22 events that the log has not") || !strings.Contains(found, "failovers compare 1 --import URL") {
		t.Errorf("the doctor says %q", found)
	}

	equal(t, "brought back", value[int64](s, "select posthorn.bring_back('default', 1)"), 22)
	equal(t, "brought back again", value[int64](s, "select posthorn.bring_back('default', 1)"), 0)
	s.exec("reset role")
	s.publishMany(1)
	has(30 + 22 + 3 + 1)
	if imported {
		await.True(t, "the relay has written what came back", func() bool {
			return b.Client.XLen(t.Context(), "default").Val() == 3+20+1 && b.Client.XLen(t.Context(), `o"}r`).Val() == 1
		})
	}
	there.exec("reset role")
	there.await("select count(*) = 0 from posthorn.import_stream_status where lag_events > 0")
	equal(t, "imported events, by their ids there", value[int64](there, `
		select count(distinct metadata::jsonb->'posthorn_origin'->>'id') from posthorn.events where metadata::text like '{"posthorn_origin"%'`), 30+22+3+1)
	equal(t, "imported events", value[int64](there, `select count(*) from posthorn.events where metadata::text like '{"posthorn_origin"%'`), 30+22+3+1)
	equal(t, "dead letters of the import", value[int64](there, "select count(*) from posthorn.list_import_dead_letters('shop')"), 0)
	compare(admin.ImportComparison{Compared: 30 + 22, Lost: 22})
}

func closeLater(t *testing.T, c io.Closer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}
