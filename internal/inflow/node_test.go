package inflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Two nodes share the streams: one that comes later gets its part, and when one
// goes the other has them all.
func TestNodesShareStreams(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for n := range 10 {
		broker.put(fmt.Sprintf("s%d", n), 1)
	}
	open := func(name string) (stop func()) {
		ph := w.open()
		handle(ph.Group("g", from("shelf://"+host)), false, func(e posthorn.Event) error {
			w.say("%s %d", e.Stream, e.ID)
			return nil
		})
		return w.run(ph)
	}
	held := func(want string) {
		t.Helper()
		w.eventually(func() string {
			got := ask[string](w, `select coalesce(string_agg(n::text, ' ' order by n), '') from (
				select count(*) as n from posthorn.source_streams where reader is not null group by reader) x`)
			if got == want {
				return ""
			}
			return fmt.Sprintf("they hold %s, want %s", got, want)
		})
	}
	open("one")
	held("10")
	stop := open("two")
	held("5 5")
	for n := range 10 {
		broker.put(fmt.Sprintf("s%d", n), 2)
	}
	stop()
	held("10")
	var want []string
	for n := range 10 {
		broker.put(fmt.Sprintf("s%d", n), 3)
		for id := range 3 {
			want = append(want, fmt.Sprintf("s%d %d", n, id+1))
		}
	}
	w.hears(want...)
}

// A stream that went to another reader cannot be settled by the one before:
// nothing is left of what it did in the transaction.
// Seed 003.22
func TestALateReaderIsFenced(t *testing.T) {
	w := newWorld(t)
	w.exec("create table effects (id bigint, try int)")
	broker, host := newShelf(t)
	broker.put("s", 1)
	broker.put("s", 2)
	late, goOn := make(chan struct{}), make(chan struct{})
	ph := w.open()
	try := 0
	ph.Group("g", from("shelf://"+host)).HandleTx("h", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		try++
		if try == 1 {
			close(late)
			<-goOn
		}
		_, err := tx.Exec(ctx, "insert into effects values ($1, $2)", e.ID, try)
		return err
	})
	w.run(ph)
	<-late
	w.exec("update posthorn.source_streams set reader = null, fence = gen_random_uuid()") // as another would
	close(goOn)
	w.passed("s", "2")
	if got := ask[string](w, "select string_agg(id || ' at ' || try, ', ' order by try) from effects"); got != "1 at 2, 2 at 3" {
		t.Errorf("the effects are %s", got)
	}
}

// A pause stops a group, and what is published meanwhile comes afterwards.
func TestAPausedGroupReadsNothing(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	broker.put("s", 1)
	ph := w.open()
	handle(ph.Group("g", from("shelf://"+host)), false, func(e posthorn.Event) error {
		w.say("%d", e.ID)
		return nil
	})
	w.exec("select posthorn.define_group('default', 'g')")
	w.exec("select posthorn.pause_group('default', 'g')")
	w.run(ph)
	w.eventually(func() string {
		if ask[int](w, "select count(*) from posthorn.source_streams where reader is not null") == 1 {
			return ""
		}
		return "nobody has it"
	})
	w.hears()
	w.exec("select posthorn.resume_group('default', 'g')")
	w.hears("1")
}

// Batches are handled as those from the log, and fail one by one.
func TestBatchesFromABroker(t *testing.T) {
	w := newWorld(t)
	broker, host := newShelf(t)
	for id := range int64(9) {
		broker.put("s", id+1)
	}
	ph := w.open()
	failed := false
	ph.Group("g", from("shelf://"+host)).HandleBatch("h", ">", func(_ context.Context, events []posthorn.Event) error {
		wrong := posthorn.EventErrors{}
		for _, e := range events {
			if e.ID == 4 && !failed {
				failed = true
				wrong[e.ID] = errors.New("not yet")
				continue
			}
			w.say("%d", e.ID)
		}
		if len(wrong) > 0 {
			return wrong
		}
		return nil
	})
	w.run(ph)
	w.passed("s", "9")
	w.hears(numbers(1, 9)...)
}
