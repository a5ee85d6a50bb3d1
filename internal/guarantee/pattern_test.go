package guarantee

import (
	"strings"
	"testing"
)

// The parts between the dots are compared literally: no character of a name has a
// special meaning.
func TestMatches(t *testing.T) {
	t.Parallel()
	s := database(t)
	long := strings.Repeat("a.", 120) + "b"
	for _, test := range []struct {
		pattern string
		yes, no []string
	}{
		{"order.placed", []string{"order.placed"}, []string{"order", "order.placed.x", "order.place", "order_placed", "Order.placed", ""}},
		{"order.*", []string{"order.placed", "order.*", "order.", "order.größe"}, []string{"order", "order.item.added", "orders.placed", "x.order.placed"}},
		{"order.>", []string{"order.placed", "order.item.added", "order.>", "order."}, []string{"order", "orders.placed", "x.order.placed"}},
		{"*", []string{"order", "*"}, []string{"order.placed"}},
		{">", []string{"order", "order.placed", long, "."}, nil},
		{"*.>", []string{"order.placed", "order.item.added"}, []string{"order"}},
		{"*.placed", []string{"order.placed", ".placed"}, []string{"placed", "order.item.placed", "order.replaced"}},
		{"*.*", []string{"a.b"}, []string{"a", "a.b.c"}},
		{"a.*.c", []string{"a.b.c", "a..c"}, []string{"a.c", "a.b.b.c", "a.b.d"}},
		{"a.*.>", []string{"a.b.c", "a.b.c.d"}, []string{"a.b", "a", "b.b.c"}},
		{"*.b.*.d.>", []string{"a.b.c.d.e", "a.b.c.d.e.f"}, []string{"a.b.c.d", "a.c.c.d.e"}},
		{"a_c.%", []string{"a_c.%"}, []string{"abc.x", "a_c.x"}},
		{"a+.(b|c).*", []string{"a+.(b|c).d"}, []string{"aa.b.d", "a+.b.d"}},
		{`a\.*`, []string{`a\.b`}, []string{"a.b"}},
		{"[a].*.$", []string{"[a].b.$"}, []string{"a.b.", "a.b.$"}},
		{"stream:user:events.*", []string{"stream:user:events.x"}, []string{"stream:user:events"}},
		{long, []string{long}, []string{"a.b"}},
	} {
		s.exec("select posthorn.check_pattern($1)", test.pattern)
		for _, name := range test.yes {
			equal(t, test.pattern+" matches "+name, value[bool](s, "select posthorn.matches($1, $2)", test.pattern, name), true)
		}
		for _, name := range test.no {
			equal(t, test.pattern+" matches "+name, value[bool](s, "select posthorn.matches($1, $2)", test.pattern, name), false)
		}
	}
	// Both implementations agree wherever both apply.
	equal(t, "disagreements", column[string](s, `
		select p || ' ' || n
		from unnest(array['a', 'a.b', '*', '*.b', 'a.*', 'a.>', '>', '*.*', '*.>', 'a.*.c', 'a.b.>']) p,
			unnest(array['a', 'a.b', 'b.b', 'a.b.c', 'a.', '.b', '*', '>', 'a.>', 'ab.b']) n
		where posthorn.matches(p, n) <> posthorn.matches_by_parts(p, n)`), []string{})
	equal(t, "> before the end", value[bool](s, "select posthorn.matches('a.*.>.b', 'a.x.y.b') or posthorn.matches('a.>.b', 'a.x.b')"), false)
	equal(t, "null", value[bool](s, "select posthorn.matches(null, 'a') is null and posthorn.matches('a.*.b', null) is null"), true)
}

func TestBadPatternsAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, pattern := range []string{
		"", ".", "a.", ".a", "a..b", ">.a", "a.>.b", ">>", "order*", "*order", "a.b*.c", "order>", "a\tb", strings.Repeat("a", 256),
	} {
		if err := s.refused("PH004", "select posthorn.check_pattern($1)", pattern); err.Hint == "" {
			t.Errorf("no hint for %q", pattern)
		}
	}
	s.refused("PH004", "select posthorn.check_pattern(null)")
}
