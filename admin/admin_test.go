package admin_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// looks are all calls that return lists. Each of them fails at its first row if a field
// has no column.
func looks(t *testing.T, a *admin.Admin) map[string]func() (int, error) {
	ctx := t.Context()
	return map[string]func() (int, error){
		"groups":     func() (int, error) { all, err := a.Groups(ctx); return len(all), err },
		"jobs":       func() (int, error) { all, err := a.Jobs(ctx, admin.JobFilter{}); return len(all), err },
		"job limits": func() (int, error) { all, err := a.JobLimits(ctx); return len(all), err },
		"archives":   func() (int, error) { all, err := a.Archives(ctx); return len(all), err },
		"imports":    func() (int, error) { all, err := a.Imports(ctx); return len(all), err },
		"relays":     func() (int, error) { all, err := a.Relays(ctx); return len(all), err },
		"projections": func() (int, error) {
			all, err := a.Projections(ctx)
			return len(all), err
		},
		"schedules":  func() (int, error) { all, err := a.Schedules(ctx); return len(all), err },
		"streams":    func() (int, error) { all, err := a.Streams(ctx, admin.StreamFilter{}); return len(all), err },
		"webhooks":   func() (int, error) { all, err := a.Webhooks(ctx); return len(all), err },
		"nodes":      func() (int, error) { all, err := a.Nodes(ctx); return len(all), err },
		"tokens":     func() (int, error) { all, err := a.Tokens(ctx); return len(all), err },
		"namespaces": func() (int, error) { all, err := a.Namespaces(ctx); return len(all), err },
	}
}

// Each list but those of namespaces and streams is empty in a new namespace, and is not
// after a thing of its kind was made.
func TestLists(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	for name, look := range looks(t, a) {
		if n, err := look(); err != nil || n > 0 && name != "namespaces" && name != "streams" {
			t.Errorf("%s of a new namespace: %d, %v", name, n, err)
		}
	}
	for _, sql := range []string{
		"select posthorn.define_group('default', 'g')",
		"select posthorn.enqueue('default', 'job', retry_delays => '{1 minute}')",
		"select posthorn.set_job_limit('default', 'x', 0, 5, '1 minute')",
		"select posthorn.define_archive('default', 'cold', 'file:///cold')",
		"select posthorn.define_import('default', 'from', 'redis://there', 'redis', '{>}')",
		"select posthorn.define_relay('default', 'to')",
		"select posthorn.define_projection('default', 'totals')",
		`select posthorn.create_webhook('default', 'crm', '{"url": "https://example.com/hooks"}')`,
		"select posthorn.schedule('default', 'nightly', '@daily', 'e')",
		"select posthorn.publish('default', 'e', '{}')",
		"select posthorn.register_node('default', 'node')",
	} {
		if _, err := ph.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if _, err := a.CreateToken(t.Context(), admin.NewToken{Name: "n", Scopes: []string{"read"}}); err != nil {
		t.Fatal(err)
	}
	for name, look := range looks(t, a) {
		if n, err := look(); err != nil || n == 0 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	jobs, err := a.Jobs(t.Context(), admin.JobFilter{Status: admin.JobPending})
	if err != nil || !slices.Equal(jobs[0].RetryDelays, []time.Duration{time.Minute}) {
		t.Errorf("jobs are %+v, %v", jobs, err)
	}
	limits, err := a.JobLimits(t.Context())
	if want := (admin.JobLimit{MaxRunning: -1, MaxStarted: 5, Period: time.Minute}); err != nil || limits[0].Limit() != want {
		t.Errorf("limits are %+v, %v; want %+v", limits, err, want)
	}
}

// A thing that does not exist is not found, and the error has a hint.
func TestNotFound(t *testing.T) {
	t.Parallel()
	a := posthorntest.Open(t, posthorn.Config{}).Admin()
	ctx := t.Context()
	for name, look := range map[string]func() error{
		"group":         func() error { _, err := a.Group(ctx, "none"); return err },
		"kind":          func() error { _, err := a.GroupKind(ctx, "none"); return err },
		"policy":        func() error { _, err := a.GroupPolicy(ctx, "none"); return err },
		"subscriptions": func() error { _, err := a.Subscriptions(ctx, "none"); return err },
		"job":           func() error { _, err := a.Job(ctx, 7); return err },
		"archive":       func() error { _, err := a.Archive(ctx, "none"); return err },
		"import":        func() error { _, err := a.Import(ctx, "none"); return err },
		"relay":         func() error { _, err := a.Relay(ctx, "none"); return err },
		"stuck streams": func() error { _, err := a.StuckStreams(ctx, "none"); return err },
		"projection":    func() error { _, err := a.Projection(ctx, "none"); return err },
		"schedule":      func() error { _, err := a.Schedule(ctx, "none"); return err },
		"stream":        func() error { _, err := a.Stream(ctx, "none"); return err },
		"outcomes":      func() error { _, err := a.Outcomes(ctx, 7); return err },
		"deletion":      func() error { _, err := a.DeleteGroup(ctx, "none"); return err },
		"event":         func() error { _, err := a.Event(ctx, 7); return err },
	} {
		if err := look(); !errors.Is(err, posthorn.ErrNotFound) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, posthorn.Hint(err))
		}
	}
}

// For a caller who has rights in one namespace there is no other, and none can be made.
func TestConfined(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin()
	if err := a.DefineNamespaceNamed(ctx, "shop", nil); err != nil {
		t.Fatal(err)
	}
	all, err := a.Namespaces(ctx)
	if err != nil || len(all) != 2 {
		t.Errorf("the namespaces are %+v, %v", all, err)
	}
	own := ph.Namespace()
	confined := a.Holding(&admin.FoundToken{ID: 1, Namespace: &own})
	if all, err = confined.Namespaces(ctx); err != nil || len(all) != 1 || all[0].Name != ph.Namespace() {
		t.Errorf("those of the confined caller are %+v, %v", all, err)
	}
	if err := confined.DefineNamespaceNamed(ctx, "shop", nil); !errors.Is(err, posthorn.ErrRefused) || posthorn.Hint(err) == "" {
		t.Errorf("another namespace: %v", err)
	}
	_, keptErr := confined.KeepNamespace(ctx, "shop")
	_, deletedErr := confined.DeleteNamespace(ctx, own)
	for what, err := range map[string]error{
		"keep": keptErr, "delete its own": deletedErr,
		"close": confined.CloseNamespace(ctx, "shop", "db2", time.Second), "open": confined.OpenNamespace(ctx, "shop"),
		"close its own": confined.CloseNamespace(ctx, own, "db2", time.Second), "open its own": confined.OpenNamespace(ctx, own),
	} {
		if !errors.Is(err, posthorn.ErrRefused) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := confined.DefineNamespace(ctx, nil); err != nil {
		t.Errorf("its own: %v", err)
	}
}

// A token closes, opens, keeps and deletes no namespace with a restricted stream that it does not name: it may neither stop its
// publishers nor lose its events.
func TestUnnamedStreamsKeepTheirNamespace(t *testing.T) {
	t.Parallel()
	w := testworld.New(t)
	w.Exec("select posthorn.define_namespace('shop'), posthorn.define_namespace('other')")
	w.Exec("select posthorn.set_stream_policy('shop', 'payroll', 'restricted')")
	ctx, a := t.Context(), w.Admin()
	blind, seeing := a.Holding(&admin.FoundToken{ID: 1}), a.Holding(&admin.FoundToken{ID: 1, Streams: []string{"payroll"}})
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, posthorn.ErrRefused) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("close it", blind.CloseNamespace(ctx, "shop", "db2", time.Second))
	w.Exec("select posthorn.publish('shop', 'e')")
	if err := blind.CloseNamespace(ctx, "other", "", time.Minute); err != nil {
		t.Errorf("close one without such a stream: %v", err)
	}
	if err := blind.OpenNamespace(ctx, "other"); err != nil {
		t.Errorf("open one without such a stream: %v", err)
	}
	if err := seeing.CloseNamespace(ctx, "shop", "db2", time.Minute); err != nil {
		t.Errorf("close it by a token that names the stream: %v", err)
	}
	refused("open it", blind.OpenNamespace(ctx, "shop"))
	for _, name := range []string{"other", "shop"} {
		_, err := blind.KeepNamespace(ctx, name)
		refused("keep "+name, err)
	}
	if _, err := seeing.KeepNamespace(ctx, "shop"); !errors.Is(err, posthorn.ErrConflict) { // it was closed here
		t.Errorf("keep it by a token that names the stream: %v", err)
	}
	_, err := blind.DeleteNamespace(ctx, "shop")
	refused("delete it", err)
	if _, err := seeing.DeleteNamespace(ctx, "shop"); err != nil {
		t.Error(err)
	}
	_, err = blind.DeleteNamespace(ctx, "shop")
	refused("delete the rest", err)
	if _, err := a.DeleteNamespace(ctx, "shop"); err != nil {
		t.Errorf("without a token: %v", err)
	}
}

// A namespace is deleted in parts; the audit log of the namespace default says who has begun.
func TestDeleteNamespace(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{})
	ctx, a := t.Context(), ph.Admin().By("anna")
	if err := a.DefineNamespaceNamed(ctx, "shop", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.DeleteNamespace(ctx, "shop"); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("one that is open: %v", err)
	}
	if err := a.CloseNamespace(ctx, "shop", "db2", time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := a.KeepNamespace(ctx, "shop"); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("kept where it was closed: %v", err)
	}
	part, calls := admin.DeletedPart{}, 0
	for ; !part.Done; calls++ {
		var err error
		if part, err = a.DeleteNamespace(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		all, err := a.Namespaces(ctx)
		if err != nil || !part.Done && (len(all) != 2 || all[1].DeletingAt.IsZero()) {
			t.Errorf("meanwhile the namespaces are %+v, %v", all, err)
		}
	}
	if calls < 3 {
		t.Errorf("it took %d calls", calls)
	}
	log, err := a.Actions(ctx, 0, 10)
	if err != nil || len(log) != 1 || log[0].Name != "delete-namespace" || log[0].Subject != "shop" || log[0].Actor != "anna" {
		t.Errorf("the audit log has %+v, %v", log, err)
	}
	if _, err := a.DeleteNamespace(ctx, "shop"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
}
