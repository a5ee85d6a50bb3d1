package listen_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/test/await"
)

// A listener can be done with the first event of a scan before the scan has handed out the
// others. Its cursor does not go back before that event.
func TestCursorDoesNotGoBackDuringAScan(t *testing.T) {
	t.Parallel()
	h, pool := newHub(t)
	ctx := await.Context(t)
	everything, err := listen.Filter{}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*listen.Listener // in the order in which a scan hands events out
	for i := range both {
		both[i] = h.NewListener(everything, 10)
		if err := both[i].StartNow(ctx); err != nil {
			t.Fatal(err)
		}
		defer both[i].Close()
	}
	quick := both[0]
	unblock := both[1].Block()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select posthorn.publish('default', 'e') from generate_series(1, 2)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := quick.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	quick.Done()
	during := quick.Cursor()
	unblock()
	if during != first.Cursor() {
		t.Errorf("before the second event was handed out: cursor %s, want %s", during, first.Cursor())
	}
	if _, err := quick.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if got := quick.Cursor(); got != first.Cursor() {
		t.Errorf("before the second event is done: cursor %s, want %s", got, first.Cursor())
	}
}
