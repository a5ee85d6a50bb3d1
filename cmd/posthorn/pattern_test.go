package main

import "testing"

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"order.placed", "order.placed", true},
		{"order.placed", "order.placed.late", false},
		{"order.placed", "order", false},
		{"order.*", "order.placed", true},
		{"order.*", "order", false},
		{"order.*", "order.item.added", false},
		{"*.placed", "order.placed", true},
		{"order.>", "order.placed", true},
		{"order.>", "order.item.added", true},
		{"order.>", "order", false},
		{"order.>", "orders.placed", false},
		{">", "anything.at.all", true},
		{"*", "single", true},
	} {
		p, err := parsePattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.matches(test.name); got != test.want {
			t.Errorf("%s matches %s: %v", test.pattern, test.name, got)
		}
	}
}

func TestPatternThatIsNone(t *testing.T) {
	for _, text := range []string{"", "a..b", ".a", ">.a", "a.>.b", "order*", "a.b>"} {
		if p, err := parsePattern(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
}
