package consume_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// seed 000.10: a node's id is {host}-{pid}-{8 hex}, or the configured one, cleaned.
func TestNodeID(t *testing.T) {
	w := newWorld(t)
	one, other := w.OpenWith(posthorn.Config{}).NodeID(), w.OpenWith(posthorn.Config{}).NodeID()
	want := regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_:-]+-%d-[0-9a-f]{8}$`, os.Getpid()))
	if !want.MatchString(one) || one == other {
		t.Errorf("ids %s and %s, want two that match %v", one, other, want)
	}
	for given, want := range map[string]string{"api.7:80_a": "api.7:80_a", "größe 1/2": "gr__e_1_2"} {
		if id := w.OpenWith(posthorn.Config{NodeID: given}).NodeID(); id != want {
			t.Errorf("%q became %q, want %q", given, id, want)
		}
		if id := testworld.Ask[string](w, "select posthorn.register_node('default', $1)", given); id != want {
			t.Errorf("%q became %q in SQL, want %q", given, id, want)
		}
	}
}

// seed 000.50–51, 000.65: the options have their effects, and all connections are
// closed.
func TestConnections(t *testing.T) {
	w := newWorld(t)
	w.Exec("select posthorn.define_namespace('shop')")
	const application, most = "shop-api", 3 + 2 + 1 // own statements, transactions, news
	ph := w.OpenWith(posthorn.Config{Namespace: "shop", ApplicationName: application, MaxConns: 2})
	const count = "select count(*) from pg_stat_activity where datname = current_database() and application_name = $1"
	ph.Group("ledger", quick).HandleTx("book", "order.placed", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error {
		var n int
		if err := tx.QueryRow(ctx, count, application).Scan(&n); err != nil {
			return err
		}
		w.say("%d", n)
		if n < 1 || n > most {
			t.Errorf("%d connections, want 1 to %d", n, most)
		}
		return nil
	})
	stop := testworld.Run(t, ph)
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, 100)...)
	w.awaitLines(100)
	w.settled("ledger")
	if namespace := testworld.Ask[string](w, "select string_agg(distinct namespace, ' ') from posthorn.event_log"); namespace != "shop" {
		t.Errorf("published in %s", namespace)
	}
	stop()
	if n := testworld.Ask[int](w, "select count(*) from posthorn.nodes"); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
	ph.Close()
	w.Await("select ("+count+") = 0", application)
}
