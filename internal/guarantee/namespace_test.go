package guarantee

import (
	"strings"
	"testing"
)

// seed 000.7: names are checked, and two names that would share a queue of the seed
// are refused.
func TestNamespaceNames(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`select posthorn.define_namespace('shop-eu_2', '{"team": "a"}')`)
	s.exec(`select posthorn.define_namespace('shop-eu_2', '{"team": "b"}')`)
	s.exec("select posthorn.define_namespace($1)", strings.Repeat("a", 31))
	equal(t, "namespace", value[string](s, `
		select metadata::text || (created_at <= posthorn.now())::text from posthorn.namespaces where namespace = 'shop-eu_2'`), `{"team": "b"}true`)

	for _, bad := range []any{nil, "", "Shop", "1shop", "-shop", "shop.eu", "größe", "a b", "a\n", strings.Repeat("a", 32)} {
		s.refused("PH004", "select posthorn.define_namespace($1)", bad)
		if bad != nil {
			s.refused("23514", "insert into posthorn.namespaces (namespace) values ($1)", bad)
		}
	}
	for _, twin := range []string{"shop_eu_2", "shop-eu-2", "shop_eu-2"} {
		s.refused("PH002", "select posthorn.define_namespace($1)", twin)
		s.refused("23505", "insert into posthorn.namespaces (namespace) values ($1)", twin)
	}
}

// seed 000.2: objects of a namespace are invisible in another, even with equal names.
func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	s.define("{}")
	s.exec("select posthorn.define_group('other', $1)", group)
	ours := s.publish()
	theirs := value[int64](s, "select posthorn.publish('other', 'order.placed')")

	l := s.claim(10)
	wantEvents(t, l.Events, ours)
	equal(t, "claimed in the other", column[int64](s, "select event_id from posthorn.claim('other', $1, 'worker')", group), []int64{theirs})
	const seen = "select event_id from posthorn.read_events($1, posthorn.cursor_at('-infinity')) where event_id is not null"
	equal(t, "read", column[int64](s, seen, "default"), []int64{ours})
	equal(t, "read in the other", column[int64](s, seen, "other"), []int64{theirs})

	s.settle(l, failure{Event: ours, Permanent: true})
	equal(t, "dead letters of the other", value[int](s, "select count(*) from posthorn.list_dead_letters('other')"), 0)
	equal(t, "redriven in the other", value[int](s, `select posthorn.redrive('other', null, '{"ids": [1]}')`), 0)
	equal(t, "purged in the other", value[int](s, `select posthorn.purge('other', $1)`, group), 0)
	equal(t, "given back in the other by a node of the same name", value[int](s, "select posthorn.release_node('other', 'worker')"), 1)
	s.exec("select posthorn.delete_group('other', $1)", group)
	equal(t, "dead letters", column[int64](s, "select event_id from posthorn.list_dead_letters('default')"), []int64{ours})
	wantEvents(t, s.drain())
}
