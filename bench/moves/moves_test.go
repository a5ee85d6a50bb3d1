// Package moves follows docs/coming-from-jobs.md with the systems that it names: a program of the old system has jobs
// that wait, run, come later, are retried and are unique. Then the steps of the page are made as they are printed there,
// and each job must have been done once.
package moves

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// outbox counts the mails that the jobs of both systems send. A mail to bad fails, and one to slow waits until it is
// released.
type outbox struct {
	release chan struct{}

	mu     sync.Mutex
	begun  map[string]int
	sent   map[string]int
	failed map[string]int
}

func newOutbox() *outbox {
	return &outbox{release: make(chan struct{}), begun: map[string]int{}, sent: map[string]int{}, failed: map[string]int{}}
}

var errRefused = errors.New("refused")

func (o *outbox) send(ctx context.Context, to string) error {
	o.count(o.begun, to)
	switch to {
	case "bad":
		o.count(o.failed, to)
		return errRefused
	case "slow", "customer-slow":
		select {
		case <-o.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.count(o.sent, to)
	return nil
}

func (o *outbox) count(in map[string]int, to string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in[to]++
}

// awaitBegun waits until n attempts to send a mail have begun.
func (o *outbox) awaitBegun(t *testing.T, to string, n int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d mails to %s have begun", n, to), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.begun[to] == n
	})
}

// expect compares the mails that were sent, such as "ada bob 2×slow".
func (o *outbox) expect(t *testing.T, when, sent string) {
	t.Helper()
	want := map[string]int{}
	for word := range strings.FieldsSeq(sent) {
		n, to := 1, word
		if times, rest, ok := strings.Cut(word, "×"); ok {
			_, _ = fmt.Sscan(times, &n)
			to = rest
		}
		want[to] = n
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !maps.Equal(o.sent, want) {
		t.Errorf("%s: sent %v, want %v", when, o.sent, want)
	}
}

// expectFailed compares the attempts that have failed.
func (o *outbox) expectFailed(t *testing.T, to string, want int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := o.failed[to]; got != want || len(o.failed) != 1 {
		t.Errorf("failed %v, want only %s, %d times", o.failed, to, want)
	}
}

// database is one with Posthorn, beside which an old system has its tables.
type database struct {
	*testing.T
	url  string
	conn *pgx.Conn
	ph   *posthorn.Client // of the owner
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := posthorntest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return &database{t, url, conn, posthorntest.Open(t, posthorn.Config{DatabaseURL: url})}
}

// rows runs a statement and returns how many rows it has given.
func (d *database) rows(sql string) int64 {
	d.Helper()
	tag, err := d.conn.Exec(d.Context(), sql)
	if err != nil {
		d.Fatalf("%s\n%v", sql, err)
	}
	return tag.RowsAffected()
}

// eventually waits until a query of one boolean holds.
func (d *database) eventually(query string) {
	d.Helper()
	await.True(d.T, query, func() (holds bool) {
		if err := d.conn.QueryRow(d.Context(), query).Scan(&holds); err != nil {
			d.Fatalf("%s\n%v", query, err)
		}
		return holds
	})
}

// examples returns the examples of a section of the page in a language.
func examples(t *testing.T, section, language string, want int) (texts []string) {
	t.Helper()
	for _, e := range testguide.Examples(t, "../../docs/coming-from-jobs.md") {
		if e.Section == section && e.Language == language {
			texts = append(texts, e.Text)
		}
	}
	if len(texts) != want {
		t.Fatalf("section %s has %d examples in %s, want %d", section, len(texts), language, want)
	}
	return texts
}
