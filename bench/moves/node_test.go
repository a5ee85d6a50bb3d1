package moves

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/posthorntest"
)

// programs is a directory with the programs of the page, and the packages that they import.
type programs struct {
	*database
	dir, node string
	env       []string
	mails     *outbox
}

// newPrograms writes the programs: worker.js and enqueue.js of the page's section about Node, and those of the old
// system by their names. It skips the test if the packages cannot be installed.
func newPrograms(t *testing.T, section string, names ...string) *programs {
	t.Helper()
	if !testsize.All() {
		t.Skip("make test-all follows this section")
	}
	client := testnode.Dir(t)
	installed, err := exec.CommandContext(t.Context(), "../../scripts/bench-node").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Skip(strings.TrimSpace(string(failed.Stderr)))
	} else if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(strings.TrimSpace(string(installed)), "node_modules")
	p := &programs{database: newDatabase(t), dir: t.TempDir(), node: filepath.Join(packages, ".bin", "node"), mails: newOutbox()}
	if _, err := os.Stat(p.node); err != nil {
		p.node = "node" // of this system
	}
	web := httptest.NewServer(p.mails)
	t.Cleanup(web.Close)
	p.env = append(os.Environ(), "DATABASE_URL="+p.url, "MAIL_URL="+web.URL)

	modules := filepath.Join(p.dir, "node_modules")
	if err := os.Mkdir(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{
		"posthorn": client, "bullmq": filepath.Join(packages, "bullmq"), "ioredis": filepath.Join(packages, "ioredis"), "graphile-worker": filepath.Join(packages, "graphile-worker"),
		"pg": filepath.Join(packages, "pg"), "pg-boss": filepath.Join(packages, "pg-boss"),
	} {
		if err := os.Symlink(at, filepath.Join(modules, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.write("package.json", `{"type": "module"}`)
	p.write("mail.js", `export async function send(to) {
		const answer = await fetch(process.env.MAIL_URL, { method: 'POST', body: to })
		if (!answer.ok) throw new Error(await answer.text())
	}`)
	ours := examples(t, "In Node", "js", 2)
	p.write("worker.js", ours[0])
	p.write("enqueue.js", ours[1])
	for i, text := range examples(t, section, "js", len(names)) {
		p.write(names[i], text)
	}
	return p
}

func (p *programs) write(name, text string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *programs) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(p.Context(), 2*await.Limit)
	p.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, p.node, append([]string{name}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, p.Output(), p.Output()
	return cmd
}

// run runs a program to its end.
func (p *programs) run(name string, args ...string) {
	p.Helper()
	if err := p.command(name, args...).Run(); err != nil {
		p.Fatalf("%s: %v", name, err)
	}
}

// start starts a program. It ends when stop is called. A test that fails kills it.
func (p *programs) start(name string) (stop func()) {
	p.Helper()
	cmd := p.command(name)
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
			return // graphile-worker ends itself by the signal when it has stopped
		}
		if err != nil {
			p.Errorf("%s: %v", name, err)
		}
	}
	p.Cleanup(func() {
		if !stopped {
			_ = cmd.Wait() // it is killed
		}
	})
	return stop
}

// job is a job of the old system that the page does not enqueue.
type job struct {
	Queue    string `json:"queue"` // mail or digest
	To       string `json:"to"`
	Attempts int    `json:"attempts"`
	Priority int    `json:"priority"`
}

// add enqueues jobs with a program of testdata that is written for the old system.
func (p *programs) add(name string, jobs ...job) {
	p.Helper()
	list, err := json.Marshal(jobs)
	if err != nil {
		p.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		p.Fatal(err)
	}
	p.write(name, string(text))
	p.run(name, string(list))
}

// The jobs of the old system: one that fails, those that keep its workers busy, and those that wait behind them.
var (
	bad  = job{"mail", "bad", 5, 0}
	busy = []job{{"mail", "slow", 1, 0}, {"digest", "slow", 1, 0}}
	wait = []job{{"mail", "ada", 1, 0}, {"mail", "bob", 3, 2}}
)

// enqueues runs the programs of the page that enqueue: that of the old system twice, which drops the second digest, and ours once.
func (p *programs) enqueues() {
	p.Helper()
	p.run("old-enqueue.js", "eve", "7")
	p.run("old-enqueue.js", "eve", "7")
	p.run("enqueue.js", "mia", "7")
}

// moves makes a step of the page in SQL, which moves a number of jobs.
func (p *programs) moves(step string, want int64) {
	p.Helper()
	if moved := p.rows(step); moved != want {
		p.Errorf("%d jobs are moved, want %d", moved, want)
	}
}

// endsWell awaits the mails of today with the new worker, and then those of the next days. The old workers have sent
// some mails.
func (p *programs) endsWell(theirs string) {
	p.Helper()
	p.eventually("select count(*) = 3 from posthorn.jobs where status = 'COMPLETED'") // ada, bob and the digest
	p.mails.expect(p.T, "today", theirs+" ada bob customer-7")
	for range 5 {
		posthorntest.Advance(p.T, p.ph, 25*time.Hour)
		p.eventually(`select count(*) = 0 from posthorn.jobs
			where status = 'PROCESSING' or status = 'PENDING' and coalesce(next_retry_at, run_at) <= posthorn.now()`)
	}
	p.mails.expect(p.T, "later", theirs+" ada bob customer-7 2×eve mia")
	p.mails.expectFailed(p.T, "bad", 5)
	p.eventually(`select count(*) filter (where status = 'COMPLETED') = 6 and count(*) filter (where status = 'FAILED') = 1
		and count(*) = 7 from posthorn.jobs`)
}

func TestFromPgBoss(t *testing.T) {
	t.Parallel()
	p := newPrograms(t, "pg-boss", "old-worker.js", "old-enqueue.js")
	move := examples(t, "pg-boss", "sql", 1)[0]
	stop := p.start("old-worker.js")
	p.eventually("select to_regclass('pgboss.queue') is not null")
	p.eventually("select count(*) = 2 from pgboss.queue where name in ('mail', 'digest')")

	p.add("pgboss.js", bad)
	p.eventually("select count(*) = 1 from pgboss.job where state = 'retry'")
	p.add("pgboss.js", busy...)
	p.mails.awaitBegun(t, "slow", 1)
	p.mails.awaitBegun(t, "customer-slow", 1)
	p.add("pgboss.js", wait...)
	p.enqueues()
	p.moves(move, 6)
	stopOurs := p.start("worker.js")
	close(p.mails.release)
	p.eventually("select count(*) = 2 from pgboss.job where state = 'completed' and name in ('mail', 'digest')")
	p.moves(move, 0) // again
	stop()
	p.endsWell("slow customer-slow")
	stopOurs()
	p.eventually("select count(*) = 2 from pgboss.job where name in ('mail', 'digest')")
}

func TestFromGraphileWorker(t *testing.T) {
	t.Parallel()
	p := newPrograms(t, "graphile-worker", "old-worker.js", "old-enqueue.js")
	move := examples(t, "graphile-worker", "sql", 1)[0]
	p.add("graphile.js", bad)
	stop := p.start("old-worker.js")
	p.eventually("select count(*) = 1 from graphile_worker.jobs where attempts > 0 and locked_at is null")
	p.add("graphile.js", busy[0]) // its worker does one job at a time
	p.mails.awaitBegun(t, "slow", 1)
	p.add("graphile.js", wait...)
	p.enqueues()
	p.moves(move, 6)
	stopOurs := p.start("worker.js")
	close(p.mails.release)
	p.eventually("select count(*) = 0 from graphile_worker.jobs")
	p.moves(move, 0) // again
	stop()
	p.endsWell("slow")
	stopOurs()
}

func TestFromBullMQ(t *testing.T) {
	t.Parallel()
	p := newPrograms(t, "BullMQ", "old-worker.js", "old-enqueue.js", "move.js")
	redis := testredis.Start(t, "--maxmemory-policy", "noeviction")
	p.env = append(p.env, "REDIS_URL="+redis.URL())
	stop := p.start("old-worker.js")
	p.add("bullmq.js", bad)
	await.True(t, "the job that failed waits", func() bool {
		return redis.Client.ZCard(t.Context(), "bull:mail:delayed").Val() == 1
	})
	p.add("bullmq.js", busy...)
	p.mails.awaitBegun(t, "slow", 1)
	p.mails.awaitBegun(t, "customer-slow", 1)
	p.add("bullmq.js", wait...)
	p.enqueues()
	move := p.command("move.js")
	if err := move.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("select to_regclass('moved_from_bullmq') is not null")
	p.eventually("select count(*) = 7 and (select count(*) = 6 from moved_from_bullmq) from posthorn.jobs")
	stopOurs := p.start("worker.js")
	close(p.mails.release)
	if err := move.Wait(); err != nil {
		t.Fatal(err)
	}
	p.run("move.js")
	stop()
	p.endsWell("slow customer-slow")
	stopOurs()
	for _, queue := range []string{"mail", "digest"} {
		for _, kind := range []string{"wait", "delayed", "prioritized", "active"} {
			key := "bull:" + queue + ":" + kind
			if n := redis.Client.Exists(t.Context(), key).Val(); n != 0 {
				t.Errorf("%s is not empty", key)
			}
		}
	}
}

func (o *outbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := io.ReadAll(r.Body)
	if err == nil {
		err = o.send(r.Context(), string(to))
	}
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
	}
}
