package main

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A failure in a goroutine ends the work of all, and reaches the row with its cause.
func TestFailuresOfGoroutinesAreCaught(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(){
		"callers": func() {
			eachOf(t.Context(), 2, 10, func(ctx context.Context, i int) {
				if i == 5 {
					check(skip("no peer"))
				}
			})
		},
		"connections": func() {
			make(crew, 2).run(t.Context(), 1, func(ctx context.Context, i int, _ *pgx.Conn) int {
				if i == 0 {
					check(skip("no peer"))
				}
				<-ctx.Done() // the failure of the other connection ends this one
				return 1
			})
		},
	} {
		err := caught(func() { naming("river", work) })
		if reason, ok := errors.AsType[skip](err); !ok || reason != "no peer" || err.Error() != "river: no peer" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
