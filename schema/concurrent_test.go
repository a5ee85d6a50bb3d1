package schema_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// migrateVariable makes the test binary a program that migrates and prints how many
// files it applied.
const migrateVariable = "POSTHORN_SCHEMA_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if url := os.Getenv(migrateVariable); url != "" {
		migrateProcess(url)
		return
	}
	os.Exit(m.Run())
}

func migrateProcess(url string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin) // the test closes stdin to start all processes together
	report, err := schema.Migrate(ctx, conn, schema.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(len(report.Applied))
}

const rivals = 4

func TestConcurrentConnections(t *testing.T) {
	t.Parallel()
	url := posthorntest.EmptyDatabase(t)
	observer := connect(t, url)
	run(t, observer, "select pg_advisory_lock(42)") // blocks the first until the others wait for it
	b := schema.Load(t, small(1, 42, "select pg_advisory_xact_lock(42);"))
	applied := make([]int, rivals)
	var group sync.WaitGroup
	for i := range rivals {
		conn := connect(t, url)
		group.Go(func() {
			report, err := b.Migrate(t.Context(), conn, schema.Options{})
			if err != nil {
				t.Error(err)
			}
			applied[i] = len(report.Applied)
		})
	}
	await.True(t, "the others wait for the first", func() bool {
		return value[int](t, observer, `select count(*) from pg_locks l join pg_database d on d.oid = l.database
			where d.datname = current_database() and l.locktype = 'advisory' and not l.granted and l.objid <> 42`) == rivals-1
	})
	run(t, observer, "select pg_advisory_unlock(42)")
	group.Wait()
	onlyOneWorked(t, applied)
}

func TestConcurrentProcesses(t *testing.T) {
	t.Parallel()
	url := posthorntest.EmptyDatabase(t)
	start, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outputs := make([]bytes.Buffer, rivals)
	processes := make([]*exec.Cmd, rivals)
	for i := range rivals {
		p := exec.CommandContext(t.Context(), os.Args[0])
		p.Env = append(os.Environ(), migrateVariable+"="+url)
		p.Stdin, p.Stdout, p.Stderr = start, &outputs[i], &outputs[i]
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		processes[i] = p
	}
	hold.Close()
	start.Close()
	applied := make([]int, rivals)
	for i, p := range processes {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s", err, &outputs[i])
		}
		fmt.Sscan(outputs[i].String(), &applied[i])
	}
	onlyOneWorked(t, applied)
}

func onlyOneWorked(t *testing.T, applied []int) {
	t.Helper()
	workers := 0
	for _, files := range applied {
		if files > 0 {
			workers++
		}
	}
	if workers != 1 {
		t.Errorf("%d of %d applied something, want one: %v", workers, len(applied), applied)
	}
}
