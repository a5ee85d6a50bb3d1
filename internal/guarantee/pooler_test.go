package guarantee

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthorn/posthorn/internal/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// pooled starts a PgBouncer in transaction mode in front of a database of the
// test's own, with two server connections for everybody.
func pooled(t *testing.T) (url string) {
	t.Helper()
	program := findPgBouncer(t)
	dir, err := testpg.MakeDirectory("pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := freePort(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(pgbouncerConfig(t, port)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", config)
	cmd.SysProcAttr = unprivileged(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("pgbouncer had ended: %v", err)
		}
		_ = cmd.Wait() // it was killed
	})
	url = fmt.Sprintf("postgres://anyone@127.0.0.1:%d/pooled", port)
	awaitPooler(t, url)
	return url
}

func findPgBouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no pgbouncer on this machine")
	return ""
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func pgbouncerConfig(t *testing.T, port int) string {
	t.Helper()
	server, err := url.Parse(posthorntest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := server.User.Password()
	return fmt.Sprintf(`[databases]
pooled = host=%s port=%s dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = search_path
`, server.Hostname(), server.Port(), server.Path[1:], server.User.Username(), password, port)
}

// unprivileged lets a program of root's run as another user: PgBouncer refuses
// to run as root.
func unprivileged(t *testing.T) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("root cannot run pgbouncer, and there is no user nobody")
	}
	uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func awaitPooler(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			conn.Close(t.Context())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}

// Sessions share server connections: nothing may rest in a session between two
// transactions. Prepared statements do, hence the modes.
func TestBehindTransactionPooler(t *testing.T) {
	t.Parallel()
	address := pooled(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			sessions := make([]*session, 5) // more than server connections
			for i := range sessions {
				sessions[i] = connectPooled(t, address, mode)
			}
			s := sessions[0]
			name := "group " + mode.String()
			id := value[int64](s, "select posthorn.define_group('default', $1::text)", name)

			var want, got []int64
			for i, publisher := range sessions {
				publisher.exec("begin")
				want = append(want, value[int64](publisher, "select posthorn.publish('default', 'e', key => $1::text)", fmt.Sprint(i)))
				publisher.exec("commit")
			}
			for i := range want {
				l, err := sessions[(i+1)%5].tryClaim(name, 1)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, l.Events...)
				if i%2 == 0 {
					sessions[(i+2)%5].exec("select posthorn.settle($1::bigint, $2::int)", l.ID, l.Attempt)
				} else {
					sessions[(i+3)%5].exec("select posthorn.extend($1::bigint, $2::int, '1 minute')", l.ID, l.Attempt)
					sessions[(i+2)%5].exec("select posthorn.settle($1::bigint, $2::int)", l.ID, l.Attempt)
				}
			}
			equal(t, "events", got, want)
			taken := s.publish()
			equal(t, "events by take", sessions[3].take(id), []int64{taken})
		})
	}
}

func connectPooled(t *testing.T, address string, mode pgx.QueryExecMode) *session {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &session{t: t, conn: conn}
}

// take is the claim of programs: two statements in one round trip.
func (s *session) take(group int64) []int64 {
	s.t.Helper()
	var token pgtype.UUID
	rand.Read(token.Bytes[:])
	token.Valid = true
	batch := &pgx.Batch{}
	batch.Queue("select posthorn.take($1::bigint, 'w', 10, '1 minute', $2::uuid)", group, token)
	var events []int64
	batch.Queue("select event_id from posthorn.lease_events($1::uuid)", token).Query(func(rows pgx.Rows) error {
		var err error
		events, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := s.conn.SendBatch(s.t.Context(), batch).Close(); err != nil {
		s.t.Fatalf("take: %v", err)
	}
	return events
}
