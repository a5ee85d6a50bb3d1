package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// The lines of a batch that is under way at an interrupt are counted. If the connection
// breaks, the error names the lines of the batch.
func TestLinesAreCountedExactly(t *testing.T) {
	t.Parallel()
	for _, command := range []struct{ name, table, line string }{
		{"publish", "posthorn.events", `{"type": "a"}`},
		{"enqueue", "posthorn.jobs", `{"title": "a"}`},
	} {
		for _, ending := range []struct {
			name string
			end  func(interrupt func(), terminate func())
			want string
			rows int
		}{
			{"interrupted", func(interrupt, _ func()) { interrupt() }, "context canceled; 1000 ", 1000},
			{"cut off", func(_, terminate func()) { terminate() }, "before it, and it is not known whether lines 1 to 1000 were, too", 0},
		} {
			t.Run(command.name+" "+ending.name, func(t *testing.T) {
				t.Parallel()
				url := posthorntest.Database(t)
				connect := func() *pgx.Conn {
					conn, err := pgx.Connect(t.Context(), url)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { conn.Close(context.Background()) })
					return conn
				}
				db, locker := connect(), connect()
				ask := func(sql string) (n int) {
					t.Helper()
					if err := db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				}
				tx, err := locker.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "lock table "+command.table+" in share mode"); err != nil {
					t.Fatal(err)
				}

				a := &app{databaseURL: url, namespace: "default", log: slog.New(slog.DiscardHandler)}
				cmd := newPublish(a)
				if command.name == "enqueue" {
					cmd = newJobsEnqueue(a)
				}
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				cmd.SetArgs([]string{"--lines"})
				cmd.SetIn(strings.NewReader(strings.Repeat(command.line+"\n", 3000)))
				cmd.SetOut(io.Discard)
				cmd.SetErr(io.Discard)
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				ended := make(chan error, 1)
				go func() { ended <- cmd.ExecuteContext(ctx) }()
				const waiting = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
				await.True(t, "the first batch is under way", func() bool { return ask("select count(*) "+waiting) > 0 })
				ending.end(interrupt, func() { ask("select count(pg_terminate_backend(pid)) " + waiting) })
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				err = await.Value(t, "the command ends", ended)
				if err == nil || !strings.Contains(err.Error(), ending.want) {
					t.Errorf("it says %v, want %s", err, ending.want)
				}
				if n := ask(fmt.Sprintf("select count(*) from %s", command.table)); n != ending.rows {
					t.Errorf("%d were written, want %d", n, ending.rows)
				}
			})
		}
	}
}
