package posthorntest

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// numbers is a template with one table.
var numbers = template{key: "numbers", prepare: func(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "create table numbers as select generate_series(1, 3) as n")
	return err
}}

func TestCloneHasContentsOfTemplate(t *testing.T) {
	t.Parallel()
	if got := ask[int64](t, clone(t, numbers), "select count(*) from numbers"); got != 3 {
		t.Errorf("%d numbers, want 3", got)
	}
}

func TestClonesAreApart(t *testing.T) {
	t.Parallel()
	one, other := clone(t, numbers), clone(t, numbers)
	ask[int64](t, one, "with gone as (delete from numbers returning n) select count(*) from gone")
	if got := ask[int64](t, other, "select count(*) from numbers"); got != 3 {
		t.Errorf("%d numbers in the other database, want 3", got)
	}
}

func TestTemplateIsMadeOnce(t *testing.T) {
	t.Parallel()
	var made atomic.Int32
	// A new key, also if the test is repeated in one process.
	counted := template{key: newToken(), prepare: func(ctx context.Context, url string) error {
		made.Add(1)
		return numbers.prepare(ctx, url)
	}}
	t.Run("clones", func(t *testing.T) {
		for range 8 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				ask[int64](t, clone(t, counted), "select count(*) from numbers")
			})
		}
	})
	if got := made.Load(); got != 1 {
		t.Errorf("made %d times", got)
	}
}

func TestTemplateThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	failing := template{key: newToken(), prepare: func(context.Context, string) error { return broken }}
	s := mustServer(t)
	for range 2 {
		if _, err := s.template(failing); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
}

func TestDatabaseIsDroppedThoughInUse(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("test", func(t *testing.T) {
		database := EmptyDatabase(t)
		parsed, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimPrefix(parsed.Path, "/")
		// Like many tests, this one does not close its connection.
		if _, err := pgx.Connect(t.Context(), database); err != nil {
			t.Fatal(err)
		}
	})
	if ask[bool](t, ServerURL(t), "select exists (select from pg_database where datname = '"+name+"')") {
		t.Errorf("%s still exists", name)
	}
}

func BenchmarkClone(b *testing.B) {
	for b.Loop() {
		s := mustServer(b)
		name, err := s.template(numbers)
		if err != nil {
			b.Fatal(err)
		}
		copied := s.newName("test")
		if err := s.create(b.Context(), copied, name); err != nil {
			b.Fatal(err)
		}
		if err := s.drop(b.Context(), copied); err != nil {
			b.Fatal(err)
		}
	}
}
