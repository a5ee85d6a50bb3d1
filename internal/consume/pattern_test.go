package consume_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/consume"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Go and SQL accept the same patterns, which match the same types.
func TestPatternsMeanTheSameInSQL(t *testing.T) {
	w := newWorld(t)
	parts := []string{"order", "placed", "*", ">", "", "a b", "Ü", "%", "_", "\\", "x*"}
	random := func() string {
		n := 1 + rand.IntN(4)
		some := make([]string, n)
		for i := range some {
			some[i] = parts[rand.IntN(len(parts))]
		}
		return strings.Join(some, ".")
	}
	patterns := []string{"", ">", "*", "a\tb", strings.Repeat("x", 255), strings.Repeat("x", 256)}
	var names []string
	for range 300 {
		patterns = append(patterns, random())
		names = append(names, random())
	}
	for i, pattern := range patterns {
		var refused error
		if _, err := w.Pool().Exec(t.Context(), "select posthorn.check_pattern($1)", pattern); err != nil {
			refused = err
		}
		if valid := consume.ValidPattern(pattern); valid != (refused == nil) {
			t.Errorf("pattern %q: valid in Go %v, SQL says %v", pattern, valid, refused)
		}
		if refused != nil {
			continue
		}
		for range 5 {
			name := names[rand.IntN(len(names))]
			if i%2 == 0 { // often one that matches
				name = strings.NewReplacer("*", "one", ">", "one.two").Replace(pattern)
			}
			if name == "" {
				continue // no event is of that type
			}
			want := testworld.Ask[bool](w, "select posthorn.matches($1, $2)", pattern, name)
			if got := consume.Matches(pattern, name); got != want {
				t.Errorf("%s in Go %v, in SQL %v", fmt.Sprintf("%q matches %q:", pattern, name), got, want)
			}
		}
	}
}
