package guarantee

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// cancelled runs a call while the server waits in vain for a synchronous standby, cancels the
// waits as an administrator does, and returns the call's error.
func cancelled(t *testing.T, primary *testpg.Server, call func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- call() }()
	waited := false
	var err error
	await.True(t, "the call returns", func() bool {
		select {
		case err = <-result:
			return true
		default:
			waited = primary.CancelWaits(t) || waited
			return false
		}
	})
	if !waited {
		t.Error("the call has not waited for a standby")
	}
	return err
}

// openOnPrimary starts a server that may get standbys, and opens a client with its log.
func openOnPrimary(t *testing.T) (primary *testpg.Server, w *testworld.World, lines *testworld.Buffer) {
	t.Helper()
	primary, lines = testpg.StartPrimary(t, nil), &testworld.Buffer{}
	w = testworld.Open(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	return primary, w, lines
}

// A wait for a synchronous standby that an administrator cancels leaves a transaction that is
// committed, and that a failover may lose. Every call says so.
func TestCancelledWaitIsUnconfirmed(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	w := testworld.Open(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true})
	pooled := testworld.Open(t, posthorn.Config{DatabaseURL: testpg.Pooler(t, primary.URL())})
	m := posthorn.Message{Type: "order.placed"}
	publisher := w.Publisher(posthorn.PublisherConfig{})
	for name, call := range map[string]func() error{
		"publish":                  func() error { _, err := w.Publish(t.Context(), w.Pool(), m); return err },
		"publish several":          func() error { _, err := w.Publish(t.Context(), w.Pool(), m, m); return err },
		"publish through a pooler": func() error { _, err := pooled.Publish(t.Context(), pooled.Pool(), m); return err },
		"publisher":                func() error { _, err := publisher.Publish(t.Context(), m); return err },
		"publisher, two":           func() error { _, err := publisher.Publish(t.Context(), m, m); return err },
		"enqueue": func() error {
			_, err := w.Enqueue(t.Context(), w.Pool(), posthorn.NewJob{Title: "j"})
			return err
		},
		"administration": func() error { return w.Admin().DefineNamespaceNamed(t.Context(), "other", nil) },
	} {
		before := testworld.Ask[int](w, "select count(*) from posthorn.events") + testworld.Ask[int](w, "select count(*) from posthorn.jobs")
		primary.SetSynchronous(t, "missing")
		err := cancelled(t, primary, call)
		primary.SetSynchronous(t, "")
		if !errors.Is(err, posthorn.ErrUnconfirmed) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		after := testworld.Ask[int](w, "select count(*) from posthorn.events") + testworld.Ask[int](w, "select count(*) from posthorn.jobs")
		if name != "administration" && after == before {
			t.Errorf("%s: nothing is committed", name)
		}
	}

	primary.SetSynchronous(t, "missing")
	err := cancelled(t, primary, func() error {
		return pgx.BeginFunc(t.Context(), w.Pool(), func(tx pgx.Tx) error {
			_, err := w.Publish(t.Context(), tx, m)
			return err
		})
	})
	if !hasCode(err, "PH007") {
		t.Errorf("a transaction of the program: %v", err)
	}
}

// A commit whose connection is terminated during the wait is seen, although no standby has it, and its program has an
// error. So an operator must not terminate such a connection.
func TestTerminatedWaitIsSeen(t *testing.T) {
	t.Parallel()
	primary, w, _ := openOnPrimary(t)
	publisher, err := pgx.Connect(t.Context(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close(context.Background())
	primary.SetSynchronous(t, "missing")
	result := make(chan error, 1)
	go func() {
		_, err := publisher.Exec(t.Context(), "select posthorn.publish('default', 'order.placed')")
		result <- err
	}()
	primary.AwaitWait(t)
	testworld.Equal(t, "events that are seen during the wait", testworld.Ask[int](w, "select count(*) from posthorn.events"), 0)
	w.Exec("select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
	if err := await.Value(t, "the publisher has an answer", result); err == nil {
		t.Error("the publisher has no error")
	}
	testworld.Equal(t, "events that are seen after it", testworld.Ask[int](w, "select count(*) from posthorn.events"), 1)
}

// A handler's transaction whose wait is cancelled is committed: the handler is not called for
// the event again, and the log says that a failover may lose the transaction.
func TestCancelledWaitOfAHandler(t *testing.T) {
	t.Parallel()
	primary, w, lines := openOnPrimary(t)
	w.Exec("create table public.effects (event bigint)")
	var first atomic.Int32
	called, goOn, next := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 10)
	w.Group("g", testworld.FromBeginning()).HandleTx("h", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if e.Type == "second" {
			next <- struct{}{}
			return nil
		}
		first.Add(1)
		called <- struct{}{}
		<-goOn
		_, err := tx.Exec(ctx, "insert into public.effects values ($1)", e.ID) // without an effect, it would not wait
		return err
	})
	stop := w.Start()
	defer stop()
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	publish := func(kind string) {
		if _, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	publish("first")
	await.Value(t, "the first call", called)
	primary.SetSynchronous(t, "missing")
	release()
	await.True(t, "the warning", func() bool {
		primary.CancelWaits(t)
		return strings.Contains(lines.String(), "a transaction of a handler is committed, and a failover may lose it")
	})
	primary.SetSynchronous(t, "")
	publish("second")
	await.Value(t, "the second event", next)
	equal(t, "calls for the first event", int(first.Load()), 1)
	equal(t, "effects", testworld.Ask[int](w, "select count(*) from public.effects"), 1)
}

// The context of a publisher ends while its commit waits for a standby. Posthorn does not
// cancel the wait, so no consumer sees the event before a standby has it.
func TestDeadlineDoesNotCancelTheWait(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true}).Close()
	for name, call := range map[string]func(ctx context.Context, ph *posthorn.Client) error{
		"publish": func(ctx context.Context, ph *posthorn.Client) error {
			_, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "order.placed"})
			return err
		},
		"commit": func(ctx context.Context, ph *posthorn.Client) error {
			return pgx.BeginFunc(ctx, ph.Pool(), func(tx pgx.Tx) error {
				_, err := ph.Publish(ctx, tx, posthorn.Message{Type: "order.placed"})
				return err
			})
		},
	} {
		s := connect(t, primary.URL())
		before := value[int](s, "select count(*) from posthorn.events")
		primary.SetSynchronous(t, "missing")
		ph := testworld.OpenClient(t, posthorn.Config{DatabaseURL: primary.URL()})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- call(ctx, ph) }()
		primary.AwaitWait(t)
		cancel()
		if err := await.Value(t, "the call returns", result); err == nil {
			t.Errorf("%s: no error", name)
		}
		ph.Close() // waits until its connections are closed
		equal(t, name+": events that are visible", value[int](s, "select count(*) from posthorn.events"), before)
		primary.SetSynchronous(t, "")
		s.await("select count(*) = $1 from posthorn.events", before+1)
	}
	log, err := os.ReadFile(primary.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "canceling wait") {
		t.Error("a wait was cancelled")
	}
}

func asOrdinary(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("ordinary", "secret")
	return u.String()
}

// The old primary comes back after a failover. A process that has seen the new one leaves it:
// its connections go to the next address of the URL, and the log names the old one.
func TestOldPrimaryIsRefused(t *testing.T) {
	t.Parallel()
	old := testpg.StartPrimary(t, nil)
	lines := &testworld.Buffer{}
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: old.URL(), Migrate: true}).Close()
	connect(t, old.URL()).exec("create role ordinary login password 'secret' in role posthorn_publisher")
	standby := old.Standby(t, "standby")
	open := func(url string) (*posthorn.Client, error) {
		return posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	}
	hosts := "127.0.0.1:" + strconv.Itoa(old.Port())
	both := strings.Replace(old.URL(), hosts, hosts+",127.0.0.1:"+strconv.Itoa(standby.Port()), 1)
	ph, err := open(both) // on the old primary
	if err != nil {
		t.Fatal(err)
	}
	defer ph.Close()
	publish := func(ph *posthorn.Client) error {
		_, err := ph.Publish(t.Context(), ph.Pool(), posthorn.Message{Type: "order.placed"})
		return err
	}
	if err := publish(ph); err != nil {
		t.Fatal(err)
	}
	connect(t, standby.URL()).await("select exists (select from posthorn.events)")
	standby.Promote(t) // both accept writes now
	fresh, err := open(asOrdinary(t, standby.URL()))
	if err != nil {
		t.Fatal(err)
	}
	fresh.Close()

	if err := publish(ph); err != nil {
		t.Fatal(err)
	}
	equal(t, "events at the new primary", value[int](connect(t, standby.URL()), "select count(*) from posthorn.events"), 2)
	equal(t, "events at the old primary", value[int](connect(t, old.URL()), "select count(*) from posthorn.events"), 1)
	if !strings.Contains(lines.String(), "old primary") || !strings.Contains(lines.String(), hosts) {
		t.Errorf("the log does not name the old primary: %s", lines.String())
	}
	if _, err := open(asOrdinary(t, old.URL())); err == nil || !strings.Contains(posthorn.Hint(err), "standbys.md") {
		t.Errorf("the old primary alone: %v", err)
	}
}

// The doctor says how many commits wait for a synchronous standby, and which one is missing.
func TestDoctorNamesTheMissingStandby(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true}).Close()
	primary.Standby(t, "near")
	s, publisher := connect(t, primary.URL()), connect(t, primary.URL())
	primary.SetSynchronous(t, `FIRST 2 (near, "far away")`)
	outcome := publisher.background("select posthorn.publish('default', 'order.placed')")
	const found = "select exists (select from posthorn.doctor() where level = 'fail' and found ~ $1)"
	s.await(found, "^1 commit has waited for a synchronous standby for up to .*; not connected: far away$")
	primary.SetSynchronous(t, "near")
	if err := outcome(); err != nil {
		t.Error(err)
	}
	equal(t, "afterwards", value[bool](s, found, "synchronous standby"), false)
}

// PgBouncer is killed and started again, and a standby takes over behind it, at the primary's
// address. Each event that was acknowledged is there, and handled once.
func TestFailoverBehindPgBouncer(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, nil)
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: primary.URL(), Migrate: true}).Close()
	connect(t, primary.URL()).exec("create table public.effects (event bigint)")
	standby := primary.Standby(t, "standby")
	primary.SetSynchronous(t, "standby")
	address := testpg.NewProxy(t, primary.URL())
	pooler := testpg.StartPgBouncer(t, address.URL(t))
	w := testworld.Open(t, posthorn.Config{DatabaseURL: pooler.URL, Logger: slog.New(slog.DiscardHandler)})
	var handled atomic.Int64
	w.Group("g", testworld.FromBeginning()).HandleTx("h", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		handled.Add(1)
		_, err := tx.Exec(ctx, "insert into public.effects values ($1)", e.ID)
		return err
	})
	stop := w.Start()
	defer stop()
	var acknowledged []int64
	publish := func(what string) {
		t.Helper()
		before := handled.Load()
		for range 20 {
			await.True(t, what+": an event is acknowledged", func() bool {
				id, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "order.placed"})
				acknowledged = append(acknowledged, id...)
				return err == nil
			})
		}
		await.True(t, what+": events are handled", func() bool { return handled.Load() >= before+20 })
	}
	publish("at first")
	pooler.Kill()
	pooler.Start(t)
	publish("after a kill of PgBouncer")
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	address.Redirect(t, standby.URL())
	publish("after the failover")
	s := connect(t, standby.URL())
	equal(t, "acknowledged events that are lost", column[int64](s, "select unnest($1::bigint[]) except select id from posthorn.events", acknowledged), []int64{})
	s.await("select count(*) = (select count(*) from posthorn.events) from public.effects")
	equal(t, "events that were handled twice", column[int64](s, "select event from public.effects group by event having count(*) > 1"), []int64{})
}

// cancelledSettlement runs a group whose first event fails for good, and cancels the wait of the
// settlement that has the failure. It returns the log of the group's process, once a later event
// is handled. The first event is committed as a dead letter, and handled no second time.
func cancelledSettlement(t *testing.T, inHeartbeat bool) string {
	t.Helper()
	primary, w, lines := openOnPrimary(t)
	var first atomic.Int32
	called, fail, goOn, last := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}), make(chan struct{}, 10)
	config := testworld.FromBeginning()
	config.Concurrency = 1
	w.Group("g", config).Handle("h", ">", func(ctx context.Context, e posthorn.Event) error {
		switch e.Type {
		case "first":
			first.Add(1)
			called <- struct{}{}
			<-fail
			return posthorn.Permanent(errors.New("it fails"))
		case "second":
			<-goOn
		default:
			last <- struct{}{}
		}
		return nil
	})
	types := []string{"first"}
	if inHeartbeat { // the second event keeps the lease
		types = append(types, "second")
	}
	publish := func(types ...string) {
		messages := make([]posthorn.Message, len(types))
		for i, name := range types {
			messages[i].Type = name
		}
		if _, err := w.Publish(t.Context(), w.Pool(), messages...); err != nil {
			t.Fatal(err)
		}
	}
	publish(types...)
	stop := w.Start()
	defer stop()
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	await.Value(t, "the first call", called)
	primary.SetSynchronous(t, "missing")
	close(fail)
	await.True(t, "the warning", func() bool {
		primary.CancelWaits(t)
		return strings.Contains(lines.String(), "settle: the transaction is committed")
	})
	primary.SetSynchronous(t, "")
	release()
	publish("last")
	await.Value(t, "the last event", last)
	equal(t, "calls for the first event", int(first.Load()), 1)
	equal(t, "dead letters", testworld.Ask[int](w, "select count(*) from posthorn.dead_letters"), 1)
	return lines.String()
}

// A settlement with a failure is committed, and its wait is cancelled. The log says that a failover
// may lose it: it does not say that the lease is lost, or that the settlement is tried again.
func TestCancelledWaitOfASettlement(t *testing.T) {
	t.Parallel()
	for name, inHeartbeat := range map[string]bool{"of a lease": false, "in a heartbeat": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := cancelledSettlement(t, inHeartbeat)
			if !strings.Contains(log, "a statement is committed, and a failover may lose it") || strings.Contains(log, "lease lost") ||
				strings.Contains(log, "trying again") {
				t.Errorf("the log says: %s", log)
			}
		})
	}
}

// A job reports that it sleeps, and the wait of the commit is cancelled. The job sleeps: neither its
// handler nor the log hears that it is lost.
func TestCancelledWaitOfASleep(t *testing.T) {
	t.Parallel()
	primary, w, lines := openOnPrimary(t)
	called, goOn, slept := make(chan struct{}, 10), make(chan struct{}), make(chan error, 10)
	release := sync.OnceFunc(func() { close(goOn) })
	w.Work([]string{"mail"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		called <- struct{}{}
		<-goOn
		err := job.Sleep(ctx, "cool down", 24*time.Hour)
		slept <- err
		return err
	})
	stop := w.Start()
	defer stop()
	defer release()
	if _, err := w.Enqueue(t.Context(), w.Pool(), posthorn.NewJob{Title: "pay", Tags: []string{"mail"}}); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the call", called)
	primary.SetSynchronous(t, "missing")
	release()
	err := cancelled(t, primary, func() error { return <-slept })
	if err == nil || errors.Is(err, posthorn.ErrLeaseLost) || !strings.Contains(err.Error(), "sleeps until") {
		t.Errorf("the sleep: %v", err)
	}
	primary.SetSynchronous(t, "")
	if log := lines.String(); !strings.Contains(log, "a statement is committed, and a failover may lose it") || strings.Contains(log, "job lost") {
		t.Errorf("the log says: %s", log)
	}
}

// A program answers an event that it has fetched, and the wait of the commit is cancelled. The answer counts: it is not
// withdrawn, and the lease is not lost.
func TestCancelledWaitOfAnAnswer(t *testing.T) {
	t.Parallel()
	primary, w, _ := openOnPrimary(t)
	if _, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "first"}); err != nil {
		t.Fatal(err)
	}
	deliveries, err := w.Group("g", testworld.FromBeginning()).Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	primary.SetSynchronous(t, "missing")
	term := func() error { return deliveries[0].Term(t.Context(), errors.New("it fails")) }
	if err := cancelled(t, primary, term); !errors.Is(err, posthorn.ErrUnconfirmed) {
		t.Errorf("the answer: %v", err)
	}
	primary.SetSynchronous(t, "")
	if err := term(); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("the answer once more: %v", err)
	}
	equal(t, "dead letters", testworld.Ask[int](w, "select count(*) from posthorn.dead_letters"), 1)
}

// mustLast lets transactions that claim things wait for a standby.
func mustLast(w *testworld.World, tables ...string) {
	w.T.Helper()
	w.Exec(`create function public.must_last() returns trigger language plpgsql as
		$$ begin perform set_config('synchronous_commit', 'on', true); return null; end $$`)
	for _, table := range tables {
		w.Exec(`create constraint trigger must_last after insert on posthorn.` + table +
			` deferrable initially deferred for each row execute function public.must_last()`)
	}
}

// A claim waits for a standby if its transaction has something that must last: mostly the note of
// a failover, and here a trigger of the program. When the wait is cancelled, the claim holds: its
// events and jobs are handed out at once.
func TestCancelledWaitOfAClaim(t *testing.T) {
	t.Parallel()
	primary, w, lines := openOnPrimary(t)
	mustLast(w, "leases", "running_jobs")
	pooled := testworld.Open(t, posthorn.Config{DatabaseURL: testpg.Pooler(t, primary.URL())})
	for name, of := range map[string]*testworld.World{"direct": w, "pooled": pooled} {
		g := of.Group(name, testworld.FromBeginning())
		w.PublishN(1)
		of.Ack(of.Fetch(g, 1)...)
		w.PublishN(1)
		primary.SetSynchronous(t, "missing")
		var deliveries []*posthorn.Delivery
		err := cancelled(t, primary, func() (err error) {
			deliveries, err = g.Fetch(t.Context(), 1)
			return err
		})
		primary.SetSynchronous(t, "")
		if err != nil || len(deliveries) != 1 {
			t.Errorf("%s: fetched %d events: %v", name, len(deliveries), err)
		}
	}
	handled := make(chan struct{}, 10)
	w.Work([]string{"mail"}, posthorn.WorkConfig{LeaseFor: time.Second}, func(context.Context, posthorn.Job) error {
		handled <- struct{}{}
		return nil
	})
	stop := w.Start()
	defer stop()
	s := connect(t, primary.URL())
	s.exec("set synchronous_commit = local")
	const enqueue = "select posthorn.enqueue('default', 'send', tags => '{mail}')"
	s.exec(enqueue)
	await.Value(t, "the first job", handled)
	primary.SetSynchronous(t, "missing")
	defer primary.SetSynchronous(t, "") // the worker could not stop
	s.exec(enqueue)
	await.True(t, "the second job is handed out, and the log tells of its completion", func() bool {
		primary.CancelWaits(t)
		return len(handled) > 0 && strings.Contains(lines.String(), "a statement is committed, and a failover may lose it")
	})
}
