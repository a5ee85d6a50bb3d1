package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// Three databases on two servers, of which one is stopped at the start, comes and goes: the others answer all the time, and the
// process ends in order while it is away.
func TestServeSeveralDatabases(t *testing.T) {
	t.Parallel()
	far := testpg.StartPrimary(t, nil)
	if out, err := exec.Command("posthorn", "migrate", "--database-url", far.URL()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := far.Kill(); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command("posthorn", "serve", "--listen", "127.0.0.1:0",
		"--database", "orders="+posthorntest.Database(t), "--database", "far="+far.URL(), "--database", "billing="+posthorntest.Database(t)))
	others := func() {
		t.Helper()
		for path, want := range map[string]int{
			"/v1/groups": 200, "/d/orders/v1/groups": 200, "/d/billing/v1/groups": 200, "/d/billing/ui/default/groups": 200, "/": 200, "/readyz": 200, "/metrics": 200,
		} {
			if got := statusOf(t, p.url+path, ""); got != want {
				t.Errorf("%s: status %d, want %d", path, got, want)
			}
		}
	}
	await.True(t, "the others are open", func() bool {
		return statusOf(t, p.url+"/d/orders/v1/groups", "") == 200 && statusOf(t, p.url+"/d/billing/v1/groups", "") == 200
	})
	others()
	if got := statusOf(t, p.url+"/d/far/v1/groups", ""); got != 503 {
		t.Errorf("a database whose server is stopped: status %d", got)
	}
	await.True(t, "the log names the database that is away", func() bool {
		return strings.Contains(p.stderr.String(), "the database is away") && strings.Contains(p.stderr.String(), "database=far")
	})
	far.Restart(t)
	await.True(t, "the database is served when it comes", func() bool { return statusOf(t, p.url+"/d/far/v1/groups", "") == 200 })
	if err := far.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the database is away again", func() bool { return statusOf(t, p.url+"/d/far/v1/groups", "") == 503 })
	others()
	p.tell(t, syscall.SIGTERM)
	if err := p.await(t); err != nil {
		t.Errorf("it ended with %v: %s", err, p.stderr)
	}
}

// At an address that other machines reach, a database without a token requires one, and does not keep the others from being
// served.
func TestSeveralDatabasesRequireTokens(t *testing.T) {
	t.Parallel()
	orders := posthorntest.Database(t)
	secret := strings.TrimSpace(mustRun(t, exec.Command("posthorn", "tokens", "create", "ops", "--scope", "all", "--database-url", orders)))
	cmd := exec.Command("posthorn", "serve", "--listen", "0.0.0.0:0", "--database", "orders="+orders, "--database", "billing="+posthorntest.Database(t))
	p := start(t, cmd)
	for path, want := range map[string]int{"/d/orders/v1/groups": 200, "/d/billing/v1/groups": 401} {
		await.True(t, path+" is open", func() bool { return statusOf(t, p.url+path, secret) != 503 })
		if got := statusOf(t, p.url+path, secret); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	if got := statusOf(t, p.url+"/d/billing/v1/groups", ""); got != 401 {
		t.Errorf("a database without tokens: status %d", got)
	}
}
