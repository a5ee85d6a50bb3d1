package admin_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

type recorded struct {
	Actor, Name, Subject, Detail string
	Done                         int64
}

func auditLog(t *testing.T, a *admin.Admin) []recorded {
	t.Helper()
	actions, err := a.Actions(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	for _, x := range actions {
		all = append(all, recorded{x.Actor, x.Name, x.Subject, string(x.Detail), x.Done})
	}
	return all
}

// bury makes dead letters of group g.
func bury(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `select posthorn.define_group('default', 'g', '{"start": "beginning"}')`)
	if err == nil {
		_, err = pool.Exec(t.Context(), `select posthorn.publish('default', 'order.placed', '{}') from generate_series(1, $1)`, n)
	}
	if err == nil {
		_, err = pool.Exec(t.Context(), `
			with c as (select * from posthorn.claim('default', 'g', 'w', $1))
			select posthorn.settle(lease, attempt, json_agg(json_build_object('event', event_id, 'permanent', true, 'reason', 'Handler error', 'error', 'no ' || event_id))::jsonb)
			from c group by lease, attempt`, n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Changes are in the audit log only if there is an actor, only if they happen, and
// with the number of things that they touched.
func TestAudit(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	bury(t, ph.Pool(), 3)
	if err := a.PauseGroup(ctx, "g"); err != nil {
		t.Fatal(err)
	}
	by := a.By("ops\x00")
	if err := by.ResumeGroup(ctx, "g"); err != nil {
		t.Fatal(err)
	}
	if err := by.PauseGroup(ctx, "none"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("pausing no group: %v", err)
	}
	if n, err := by.Redrive(ctx, admin.DeadLetterFilter{Group: "g", Error: "no "}); err != nil || n != 3 {
		t.Errorf("redriven %d, %v", n, err)
	}
	want := []recorded{
		{"ops\uFFFD", "redrive-dead-letters", "g", `{"error": "no "}`, 3},
		{"ops\uFFFD", "resume-group", "g", "{}", 1},
	}
	if diff := cmp.Diff(want, auditLog(t, a)); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// A change whose transaction is rolled back leaves no entry.
func TestAuditInTransaction(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	tx, err := ph.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ph.Admin().In(tx).By("ops").CreateToken(t.Context(), admin.NewToken{Name: "n", Scopes: []string{"read"}}); err != nil {
		t.Fatal(err)
	}
	if got := auditLog(t, ph.Admin().In(tx)); len(got) != 1 {
		t.Errorf("within the transaction: %v", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := auditLog(t, ph.Admin()); len(got) != 0 {
		t.Errorf("after the rollback: %v", got)
	}
}

// An action in parts has one entry, which counts them.
func TestAuditInParts(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, by := t.Context(), ph.Admin().By("ops")
	bury(t, ph.Pool(), 5)
	id, err := by.BeginAction(ctx, "redrive-dead-letters", "g", map[string]string{"group": "g"}, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{2, 2, 1} {
		if n, err := by.Part(id).Redrive(ctx, admin.DeadLetterFilter{Group: "g", Limit: 2}); err != nil || n != want {
			t.Errorf("redriven %d, %v; want %d", n, err, want)
		}
	}
	if action, err := by.Action(ctx, id); err != nil || action.Done != 5 || *action.Expected != 5 || !action.EndedAt.IsZero() {
		t.Errorf("action is %+v, %v", action, err)
	}
	if err := by.EndAction(ctx, id, "enough"); err != nil {
		t.Fatal(err)
	}
	action, err := by.Action(ctx, id)
	if err != nil || action.EndedAt.IsZero() || action.Error != "enough" {
		t.Errorf("action is %+v, %v", action, err)
	}
	var detail map[string]string
	if err := json.Unmarshal(action.Detail, &detail); err != nil || detail["group"] != "g" {
		t.Errorf("detail is %s", action.Detail)
	}
	if got := auditLog(t, ph.Admin()); len(got) != 1 {
		t.Errorf("audit log: %v", got)
	}
}

// The entries about a thing that a caller may not see are hidden from it, also those from before it was about the stream,
// and after it was deleted.
func TestAuditHidesAllOfAHiddenThing(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a, others := t.Context(), ph.Admin().By("ops"), ph.Admin().Hiding([]string{"payroll"})
	orders, payroll := admin.Subscription{Filter: json.RawMessage(`{"stream":"orders"}`)}, admin.Subscription{Filter: json.RawMessage(`{"stream":"payroll"}`)}
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(when string, want ...string) {
		t.Helper()
		var names []string
		for _, x := range auditLog(t, others) {
			names = append(names, x.Name+" "+x.Subject)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	subscribe := func(group, name string, s admin.Subscription) error {
		_, err := a.Subscribe(ctx, group, name, s)
		return err
	}
	do(a.DefineGroup(ctx, "pay", admin.GroupSettings{}), a.DefineGroup(ctx, "open", admin.GroupSettings{}), subscribe("open", "s", orders))
	seen("before", "put-subscription open s", "define-group open", "define-group pay")
	do(subscribe("pay", "s", orders), subscribe("pay", "s", payroll))
	seen("while they are hidden", "put-subscription open s", "define-group open")
	_, err := a.DeleteGroup(ctx, "pay")
	do(err)
	seen("when they are gone", "put-subscription open s", "define-group open")
	if all := auditLog(t, ph.Admin()); len(all) != 6 {
		t.Errorf("all entries: %+v", all)
	}
}

// The actor of an entry is as its maker says. The database user is that of the connection.
func TestAuditKeepsTheDatabaseUser(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	if err := ph.Admin().By("somebody else").DefineGroup(t.Context(), "g", admin.GroupSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ph.Admin().By("somebody else").BeginAction(t.Context(), "redrive-dead-letters", "", struct{}{}, 0); err != nil {
		t.Fatal(err)
	}
	var user string
	if err := ph.Pool().QueryRow(t.Context(), "select session_user").Scan(&user); err != nil {
		t.Fatal(err)
	}
	actions, err := ph.Admin().Actions(t.Context(), 0, 10)
	if err != nil || len(actions) != 2 {
		t.Fatal(actions, err)
	}
	for _, x := range actions {
		if x.Actor != "somebody else" || x.DatabaseUser != user {
			t.Errorf("%+v, want the database user %s", x, user)
		}
	}
}
