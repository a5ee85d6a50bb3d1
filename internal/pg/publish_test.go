package pg_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

var messages = []pg.Message{
	{Type: "order.placed"},
	{
		Type: "order.paid", Stream: "orders", Key: "a'b\"c", Tags: []string{`quote"d`, `back\slash`, "comma,{}", "NULL", "ü"},
		Payload: json.RawMessage(`{"b" : 1,"a":"it's","a":[null]}`), Metadata: json.RawMessage(`{"trace":"7"}`),
	},
	{Type: "order.noted", Payload: json.RawMessage(`"text \u00fc"`), Tags: []string{"one"}},
	{Type: "order.closed", Payload: json.RawMessage(`null`)},
}

func TestPublishKeepsEverything(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		var want []pg.Event
		for _, m := range messages {
			want = append(want, delivered(m, publish(t, pool, m)))
		}
		diffEvents(t, want, claim(t, pool, "g").Events)
	})
}

// seed 001.20
func TestPublishBatchKeepsEverything(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		defineGroup(t, pool, "g", pg.GroupConfig{})
		ids := must(pg.PublishBatch(t.Context(), pool, ns, messages))(t)
		var want []pg.Event
		for i, m := range messages {
			want = append(want, delivered(m, ids[i]))
		}
		diffEvents(t, want, claim(t, pool, "g").Events)
	})
}

func TestPublishInTurnKeepsEverything(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	defineGroup(t, pool, "g", pg.GroupConfig{})
	drawn := 0
	ids := must(pool.PublishInTurn(t.Context(), ns, messages, pg.Turn{Drawn: func() { drawn++ }}))(t)
	if drawn != 1 {
		t.Errorf("the ids were drawn %d times", drawn)
	}
	var want []pg.Event
	for i, m := range messages {
		want = append(want, delivered(m, ids[i]))
	}
	diffEvents(t, want, claim(t, pool, "g").Events)
}

func TestOvertakenBatchIsRolledBack(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	defineGroup(t, pool, "g", pg.GroupConfig{})
	turn := pg.Turn{Drawn: func() {}, MayCommit: func() bool { return false }}
	if _, err := pool.PublishInTurn(t.Context(), ns, messages, turn); !errors.Is(err, pg.ErrOvertaken) {
		t.Errorf("got %v", err)
	}
	if l := claim(t, pool, "g"); l.Held() {
		t.Errorf("claimed %v", l)
	}
}

func TestPublishBatchOfNothing(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	if ids := must(pg.PublishBatch(t.Context(), pool, ns, nil))(t); len(ids) != 0 {
		t.Errorf("ids %v", ids)
	}
}

func TestPublishManyOnceAndLater(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		later := time.Now().Add(time.Hour)
		batch := []pg.Message{
			{Type: "a", DedupKey: "k"},
			{Type: "b", DeliverAt: &later},
			{Type: "c", DedupKey: "k"},
			{Type: "d"},
		}
		ids := must(pg.PublishMany(t.Context(), pool, ns, batch))(t)
		if len(ids) != 4 || ids[0] != ids[2] {
			t.Errorf("ids %v", ids)
		}
		_, next := read(t, pool, must(pg.CursorAt(t.Context(), pool, pg.Beginning))(t))
		if want := []string{"a", "d"}; cmp.Diff(want, next) != "" {
			t.Errorf("in the log: %v, want %v", next, want)
		}
		if delayed := must(pg.Value[int64](t.Context(), pool, "count", "select count(*) from posthorn.delayed where id = $1::bigint", ids[1]))(t); delayed != 1 {
			t.Errorf("the message is delayed %d times", delayed)
		}
	})
}

func TestPublishInATransactionThatRollsBack(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgx.QueryExecModeCacheStatement)
	defineGroup(t, pool, "g", pg.GroupConfig{})
	tx := must(pool.Begin(t.Context()))(t)
	publish(t, tx, pg.Message{Type: "a"})
	check(t, tx.Rollback(t.Context()))
	if l := claim(t, pool, "g"); l.Held() {
		t.Errorf("claimed %v", l)
	}
}

func TestErrorsHaveCauseAndHint(t *testing.T) {
	everyMode(t, func(t *testing.T, pool *pg.Pool) {
		_, err := pg.Publish(t.Context(), pool, "nowhere", pg.Message{Type: "a"})
		if !errors.Is(err, pg.ErrNotFound) || err.Error() != "publish: namespace 'nowhere' does not exist" {
			t.Errorf("got %v", err)
		}
		var e *pg.Error
		if !errors.As(err, &e) || e.Hint() == "" {
			t.Errorf("no hint in %#v", err)
		}
		_, err = pg.Publish(t.Context(), pool, ns, pg.Message{})
		if !errors.Is(err, pg.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}
