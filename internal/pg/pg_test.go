package pg_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

const ns = "default"

// everyMode runs a test in each query mode. The first is the default, on a direct
// connection; the others suit poolers.
func everyMode(t *testing.T, test func(t *testing.T, pool *pg.Pool)) {
	t.Parallel()
	modes := map[string]pgx.QueryExecMode{
		"prepared": pgx.QueryExecModeCacheStatement,
		"describe": pgx.QueryExecModeCacheDescribe,
		"exec":     pgx.QueryExecModeExec,
		"simple":   pgx.QueryExecModeSimpleProtocol,
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openPool(t, mode))
		})
	}
}

func openPool(t testing.TB, mode pgx.QueryExecMode) *pg.Pool {
	t.Helper()
	return openURL(t, posthorntest.Database(t), mode)
}

func openURL(t testing.TB, url string, mode pgx.QueryExecMode) *pg.Pool {
	t.Helper()
	return testworld.OpenPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
}

// must fails the test if a call of its preparation has an error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func defineGroup(t *testing.T, db pg.DB, name string, config pg.GroupConfig) pg.Group {
	t.Helper()
	return must(pg.BeginGroup(t.Context(), db, ns, name, config))(t).Group
}

func publish(t *testing.T, db pg.DB, m pg.Message) int64 {
	t.Helper()
	return must(pg.Publish(t.Context(), db, ns, m))(t)
}

func claim(t *testing.T, db pg.DB, group string) pg.Lease {
	t.Helper()
	return must(pg.Claim(t.Context(), db, ns, group, "node", 100, time.Minute))(t)
}

func take(t *testing.T, pool *pg.Pool, group pg.Group) pg.Lease {
	t.Helper()
	return must(pool.Take(t.Context(), takeOf(group)))(t)
}

func takeOf(group pg.Group) pg.Take {
	return pg.Take{Group: group, Node: "node", MaxEvents: 100, LeaseFor: time.Minute}
}

// delivered returns the event of the first delivery of a message.
func delivered(m pg.Message, id int64) pg.Event {
	e := pg.Event{
		ID: id, Stream: m.Stream, Type: m.Type, Key: m.Key, Tags: m.Tags,
		Payload: m.Payload, Metadata: m.Metadata, Delivery: 1,
	}
	if e.Stream == "" {
		e.Stream = "default"
	}
	if e.Payload == nil {
		e.Payload = json.RawMessage("{}")
	}
	if e.Metadata == nil {
		e.Metadata = json.RawMessage("{}")
	}
	return e
}

// sameEvents ignores times, which the database sets, and takes an empty list for nil. It
// compares documents as a whole, not byte by byte.
var sameEvents = cmp.Options{
	cmp.Comparer(func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }),
	cmpopts.IgnoreFields(pg.Event{}, "PublishedAt"),
	cmpopts.EquateEmpty(),
}

func diffEvents(t *testing.T, want, got []pg.Event) {
	t.Helper()
	if diff := cmp.Diff(want, got, sameEvents); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, e := range got {
		if age := time.Since(e.PublishedAt); age < -time.Minute || age > time.Hour {
			t.Errorf("event %d was published at %v", e.ID, e.PublishedAt)
		}
	}
}

// A refusal names the right that is missing, and the grant that gives it, and no role that
// the caller has.
func TestARefusalNamesTheMissingRight(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	user := fmt.Sprintf("app_%d", conn.PgConn().PID())
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("create role " + user)
	defer func() {
		exec("reset role")
		exec("drop owned by " + user)
		exec("drop role " + user)
	}()
	adm := admin.New(conn, "default")
	define := func() error {
		_, err := adm.DefineSchedule(t.Context(), admin.Schedule{Name: "nightly", Cron: "@daily", Type: "a"})
		return err
	}
	redrive := func() error {
		_, err := adm.Redrive(t.Context(), admin.DeadLetterFilter{IDs: []int64{1}})
		return err
	}
	list := func() error {
		_, err := adm.Schedules(t.Context())
		return err
	}
	for _, c := range []struct {
		has  string
		do   func() error
		want []string
	}{
		{"", define, []string{"grant posthorn_publisher, posthorn_consumer or posthorn_admin to"}},
		{"posthorn_consumer", define, []string{"lacks execute on function posthorn.schedule,", "grant posthorn_publisher to app", "posthorn.grant_role('publisher', 'app')"}},
		{"posthorn_publisher", redrive, []string{"lacks execute on function posthorn.redrive,", "grant posthorn_admin to app"}},
		{"posthorn_consumer", list, []string{"lacks select on posthorn.schedules,", "grant posthorn_admin to app"}},
	} {
		if c.has != "" {
			exec("grant " + c.has + " to " + user)
		}
		exec("set role " + user)
		err := c.do()
		exec("reset role")
		if c.has != "" {
			exec("revoke " + c.has + " from " + user)
		}
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) {
			t.Errorf("%q: got %v, without a hint", c.has, err)
			continue
		}
		hint := hinted.Hint()
		for _, want := range c.want {
			if !strings.Contains(hint, want) {
				t.Errorf("%q: the hint is %q, without %q", c.has, hint, want)
			}
		}
		if c.has != "" && strings.Contains(hint, c.has) {
			t.Errorf("the hint names %s, which the caller has: %s", c.has, hint)
		}
	}
}

// deadLetters returns all dead letters that a filter selects.
func deadLetters(ctx context.Context, a *admin.Admin, filter admin.DeadLetterFilter) ([]admin.DeadLetter, error) {
	var found []admin.DeadLetter
	for letter, err := range a.DeadLetters(ctx, filter) {
		if err != nil {
			return nil, err
		}
		found = append(found, letter)
	}
	return found, nil
}
