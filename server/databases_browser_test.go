package server

import (
	"log/slog"
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
)

// A person looks at three databases, of which one is away: the overview begins with it, each of the others wants a token of
// its own, and an action touches the database whose page it is on.
func databasesInABrowser(t *testing.T, chromium *browser, width int64) {
	shop := serve(t)
	shop.shop(t)
	m := serveMany(t, Options{Tokens: true, Logger: slog.New(slog.DiscardHandler)}, "orders!", "billing", "far!")
	m.open(t, "orders", shop.database)
	orders, billing := m.each["orders"], m.each["billing"]
	billing.exec(t, "select posthorn.define_group('default', 'invoices')")
	p := &person{served: m.served, T: t, tab: openTab(t, chromium, width)}
	t.Cleanup(func() { p.tab.wantNoTrouble(t, p.served) })

	p.visit("/")
	p.sees("The database is away", "Sign in")
	p.seesIn("orders", "Sign in")
	p.seesNone("search", "invoices")
	p.clickIn("orders", "Sign in")
	p.sees("Database orders")
	p.fill("Token", orders.token(t, "read", "admin"))
	p.click("Sign in")
	p.sees("attention")
	p.choose("Database", "billing")
	p.sees("Database billing")
	p.arrive()
	p.fill("Token", billing.token(t, "read", "admin"))
	p.click("Sign in")
	p.goTo("Groups")
	p.clickIn("invoices", "Pause")
	if n := billing.number(t, "select count(*) from posthorn.groups where paused"); n != 1 {
		t.Errorf("%d groups of the database are paused, want 1", n)
	}
	if n := orders.number(t, "select count(*) from posthorn.groups where paused"); n != 0 {
		t.Errorf("%d groups of the other database are paused", n)
	}
	p.choose("Database", "All databases")
	p.sees("What fails first")
	p.arrive()
	p.seesNone("Sign in")
	p.seesIn("The database is away", "far")
	p.seesIn("orders", "trouble")
	p.seesIn("pause-group", "billing", "invoices")
	for _, found := range barriers(p.tab.ctx, t, axe(t)) {
		t.Errorf("all databases: %s", found)
	}
	p.must("readsWell")
	p.must("boxes")
	m.open(t, "far", posthorntest.Database(t))
	p.seesIn("far", "Sign in") // without a reload
	p.clickIn("orders", "orders")
	p.goTo("Groups")
	p.sees("search")
	p.head("Sign out")
	p.sees("Database orders")
	p.visit("/")
	p.seesIn("orders", "Sign in")
	p.seesIn("billing", "checked")
}
