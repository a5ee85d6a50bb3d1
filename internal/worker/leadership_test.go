package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

const (
	one = "importer-host-1-0123abcd"
	two = "importer-host-2-0123abcd"
)

// leads is a database with an import, which processes lead.
type leads struct {
	*testing.T
	db     *pgxpool.Pool
	imp    pg.Import
	silent bool // the work returns no error
}

func newLeads(t *testing.T) *leads {
	t.Helper()
	db, err := pgxpool.New(t.Context(), posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	imp, err := pg.DefineImport(t.Context(), db, "default", "in", "nats://nowhere", "nats", []string{">"})
	if err != nil {
		t.Fatal(err)
	}
	return &leads{T: t, db: db, imp: imp}
}

// process is a process that leads, or stands by.
type process struct {
	*leads
	worker.Lead
	begun, ended chan error    // leaderships; the cause of their ends
	lost         chan struct{} // leads
	over         chan struct{} // closed when Run has returned
	stop         context.CancelFunc
}

// process starts a process.
func (l *leads) process(owner string, leaseFor time.Duration) *process {
	l.Helper()
	p := &process{leads: l, begun: make(chan error, 9), ended: make(chan error, 9), lost: make(chan struct{}, 9), over: make(chan struct{})}
	p.Lead = worker.Lead{
		Owner: owner, LeaseFor: leaseFor, AskEvery: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Lost: func() { p.lost <- struct{}{} },
		Acquire: func(ctx context.Context) (worker.Leadership, string, error) {
			lead, err := pg.LeadImport(ctx, l.db, l.imp, owner, leaseFor, 0)
			if err != nil || lead.Epoch == 0 {
				return nil, lead.Leader, err
			}
			return &leadership{p, lead}, "", nil
		},
	}
	ctx, stop := context.WithCancel(l.Context())
	p.stop = stop
	go func() {
		defer close(p.over)
		if err := p.Run(ctx, context.WithoutCancel(ctx)); err != nil {
			l.Error(err)
		}
	}()
	l.Cleanup(func() { stop(); <-p.over })
	return p
}

type leadership struct {
	*process
	lead pg.ImportLead
}

func (l *leadership) Extend(ctx context.Context) error {
	_, err := pg.LeadImport(ctx, l.db, l.imp, l.Owner, l.LeaseFor, l.lead.Epoch)
	return err
}

func (l *leadership) Work(stop, ctx context.Context) error {
	l.begun <- nil
	select {
	case <-stop.Done():
	case <-ctx.Done():
	}
	l.ended <- context.Cause(ctx)
	if l.silent {
		return nil
	}
	return context.Cause(ctx)
}

func (l *leadership) Release(ctx context.Context) error { return pg.ResignImport(ctx, l.db, l.lead) }

// takeOver takes the lead for another process as if the lease had passed.
func (l *leads) takeOver(owner string) (lead pg.ImportLead) {
	l.Helper()
	err := pgx.BeginFunc(l.Context(), l.db, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(l.Context(), "update posthorn.leads set until = posthorn.now()"); err == nil {
			lead, err = pg.LeadImport(l.Context(), tx, l.imp, owner, time.Hour, 0)
		}
		return err
	})
	if err != nil || lead.Epoch == 0 {
		l.Fatalf("%+v, %v", lead, err)
	}
	return lead
}

// A process that stops gives its lead back: the next leads long before the lease ends.
func TestALeadIsGivenBack(t *testing.T) {
	t.Parallel()
	l := newLeads(t)
	a := l.process(one, time.Hour)
	await.Value(t, "it leads", a.begun)
	b := l.process(two, time.Hour)
	a.stop()
	await.Closed(t, "it ends", a.over)
	await.Value(t, "the other leads", b.begun)
	if err := <-a.ended; err != nil || len(a.lost) > 0 {
		t.Errorf("the work of a process that was stopped was called off: %v", err)
	}
}

// A lead that another process has taken is lost: the work ends, and the process
// stands by until the lead is free.
func TestALeadIsLost(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} { // whether the work returns no error when its context ends
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			t.Parallel()
			l := newLeads(t)
			l.silent = silent
			leadIsLost(t, l)
		})
	}
}

func leadIsLost(t *testing.T, l *leads) {
	t.Helper()
	a := l.process(one, time.Second)
	await.Value(t, "it leads", a.begun)
	other := l.takeOver(two)
	if err := await.Value(t, "its work ends", a.ended); !errors.Is(err, pg.ErrLeaseLost) {
		t.Errorf("its work ended with %v", err)
	}
	await.Value(t, "it reports that", a.lost)
	if err := pg.ResignImport(t.Context(), l.db, other); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "it leads again", a.begun)
}

// A lead that cannot be extended lapses: the work ends, though no other process
// has asked for the lead.
func TestALeadLapses(t *testing.T) {
	t.Parallel()
	l := newLeads(t)
	a := l.process(one, time.Second)
	await.Value(t, "it leads", a.begun)
	tx, err := l.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "select from posthorn.leads for update"); err != nil {
		t.Fatal(err)
	}
	if err := await.Value(t, "its work ends", a.ended); !errors.Is(err, worker.ErrLapsed) {
		t.Errorf("its work ended with %v", err)
	}
	await.Value(t, "it reports that", a.lost)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "it leads again", a.begun)
}

// The work ends a fifth of the lease before the lease does, counted from when the
// last extension was asked for.
func TestAHoldLapsesBeforeItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var h worker.Hold
		h.Init(t.Context(), began, 10*time.Second)
		h.Lapse(10 * time.Second)
		await.Pass(7 * time.Second)
		if err := h.Settle(func() (bool, error) {
			h.Extended(began.Add(5*time.Second), 10*time.Second)
			return false, nil
		}); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		if held := time.Since(began); held != 13*time.Second || !errors.Is(context.Cause(h.Context()), worker.ErrLapsed) || !h.Lapsed() {
			t.Errorf("it ended after %v: %v", held, context.Cause(h.Context()))
		}
	})
}
