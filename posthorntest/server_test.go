package posthorntest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// asProgram is an environment variable that makes the test binary a process which
// uses a server like any test and waits until its standard input ends. The value is
// the key of the template that the process creates.
const asProgram = "POSTHORNTEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	if err := runProgram(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func runProgram() error {
	s, err := processServer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	from := numbers
	if os.Getenv(asProgram) == migrated.key {
		from = migrated
	}
	name, err := s.template(from)
	if err != nil {
		return err
	}
	var dir string
	if err := s.admin.QueryRow(ctx, "show data_directory").Scan(&dir); err != nil {
		return err
	}
	fmt.Println(strings.TrimSuffix(dir, "/pgdata"), s.url.Host, name)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// program is a running process of asProgram.
type program struct {
	cmd      *exec.Cmd
	dir      string // of its server
	address  string // of its server
	database string // its template
}

func startProgram(t *testing.T, env ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] == "error:" {
		t.Fatalf("program printed %q, %v", line, err)
	}
	p.dir, p.address, p.database = fields[0], fields[1], fields[2]
	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill() // fails if the process has ended
	_ = p.cmd.Wait()
}

func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	p := startProgram(t, "POSTHORN_TEST_DATABASE_URL=")
	if !answers(p.address) {
		t.Fatal("the server does not run")
	}
	p.kill()
	await.True(t, "the server ends", func() bool { return !answers(p.address) })
	await.True(t, "its directory is removed", func() bool {
		_, err := os.Stat(p.dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func TestAbandonedDatabasesAreDropped(t *testing.T) {
	t.Parallel()
	shared := "POSTHORN_TEST_DATABASE_URL=" + ServerURL(t)
	killed, alive := startProgram(t, shared), startProgram(t, shared)
	want := map[string]bool{killed.database: true, alive.database: true}
	if diff := cmp.Diff(want, existing(t, killed, alive)); diff != "" {
		t.Fatalf("databases of two processes (-want +got):\n%s", diff)
	}
	killed.kill()
	await.True(t, "the killed process's connection closes", func() bool {
		return !connected(t, killed)
	})
	startProgram(t, shared)
	want = map[string]bool{killed.database: false, alive.database: true}
	if diff := cmp.Diff(want, existing(t, killed, alive)); diff != "" {
		t.Errorf("databases after a third came (-want +got):\n%s", diff)
	}
}

func existing(t *testing.T, programs ...*program) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, p := range programs {
		found[p.database] = ask[bool](t, ServerURL(t), "select exists (select from pg_database where datname = '"+p.database+"')")
	}
	return found
}

func connected(t *testing.T, p *program) bool {
	t.Helper()
	token := strings.Split(p.database, "_")[2]
	return ask[bool](t, ServerURL(t), "select exists (select from pg_stat_activity where application_name = 'posthorntest "+token+"')")
}

func TestServerURLIsASuperuser(t *testing.T) {
	t.Parallel()
	if !ask[bool](t, ServerURL(t), "select rolsuper from pg_roles where rolname = current_user") {
		t.Error("not a superuser")
	}
}

// ask runs a query that returns one value.
func ask[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}
