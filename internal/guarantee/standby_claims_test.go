package guarantee

import (
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// claimsOnPrimary starts a server that may get standbys, where claims wait for them, and opens pools with and
// without a pooler.
func claimsOnPrimary(t *testing.T) (primary *testpg.Server, w *testworld.World, pools map[string]*pg.Pool) {
	t.Helper()
	primary, w, _ = openOnPrimary(t)
	mustLast(w, "leases")
	return primary, w, map[string]*pg.Pool{
		"direct": testworld.OpenPool(t, primary.URL()), "pooled": testworld.OpenPool(t, testpg.Pooler(t, primary.URL())),
	}
}

// claimedUnconfirmed makes a claim while the server waits in vain for a standby, and cancels the wait. The
// claim must return one thing, and no error.
func claimedUnconfirmed(t *testing.T, primary *testpg.Server, name string, claim func() (things int, err error)) {
	t.Helper()
	primary.SetSynchronous(t, "missing")
	things := 0
	err := cancelled(t, primary, func() (err error) {
		things, err = claim()
		return err
	})
	primary.SetSynchronous(t, "")
	if err != nil || things != 1 {
		t.Errorf("%s: %d were claimed: %v", name, things, err)
	}
}

// A relay takes a window, and the wait of the commit is cancelled. It writes the events.
func TestCancelledWaitOfARelay(t *testing.T) {
	t.Parallel()
	primary, w, pools := claimsOnPrimary(t)
	for name, pool := range pools {
		group, err := pg.DefineRelay(t.Context(), pool, "default", name, pg.RelayConfig{})
		if err != nil {
			t.Fatal(err)
		}
		lead, err := pg.LeadRelay(t.Context(), pool, group, "supervisor-h-1-0123abcd", time.Minute, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.PublishN(1)
		claimedUnconfirmed(t, primary, name, func() (int, error) {
			window, err := pool.TakeRelay(t.Context(), pg.RelayTake{Lead: lead, MaxEvents: 1, LeaseFor: time.Minute})
			return len(window.Events), err
		})
	}
}

// A process that sends webhooks takes a window, and the wait of the commit is cancelled. It sends the events.
func TestCancelledWaitOfAWebhook(t *testing.T) {
	t.Parallel()
	primary, w, pools := claimsOnPrimary(t)
	w.Exec(`select posthorn.create_webhook('default', 'crm', '{"url": "https://crm.example/"}')`)
	groups, err := pg.WebhookGroups(t.Context(), w.Pool())
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	lead, err := pg.LeadWebhooks(t.Context(), w.Pool(), groups[0], "sender-h-1-0123abcd", time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, pool := range pools {
		w.PublishN(1)
		claimedUnconfirmed(t, primary, name, func() (int, error) {
			window, err := pool.TakeWebhooks(t.Context(), lead, 1, 1, time.Minute)
			return len(window.Events), err
		})
	}
}

// An archiver leases a stream, which must last, and the wait of the commit is cancelled. It writes the
// stream: otherwise nobody would until the lease ends.
func TestCancelledWaitOfAnArchive(t *testing.T) {
	t.Parallel()
	primary, w, pools := claimsOnPrimary(t)
	w.PublishN(2)
	for name, pool := range pools {
		archive, _, err := pg.DefineArchive(t.Context(), pool, "default", name, "file:///"+name, pg.ArchiveConfig{SegmentEvents: 1}, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, segments, _, err := pg.PlanArchive(t.Context(), pool, archive, 10); err != nil || segments == 0 {
			t.Fatal(segments, err)
		}
		claimedUnconfirmed(t, primary, name, func() (int, error) {
			stream, ok, err := pg.LeaseArchiveStream(t.Context(), pool, archive, "h-1-0123abcd", time.Minute)
			if !ok || stream.Name != "default" {
				return 0, err
			}
			return 1, err
		})
	}
}
