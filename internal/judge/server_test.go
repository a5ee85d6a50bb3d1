package judge

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

// server is a Postgres server that a test kills.
type server struct {
	*localpg.Server
	t      testing.TB
	config localpg.Config
}

// newServer starts a server with Posthorn and tables. Its commits survive that it is killed.
func newServer(t testing.TB, tables string) *server {
	t.Helper()
	s := &server{t: t, config: testpg.Config(testdir.New(t, "judge-").Path, testpg.BinDir(), map[string]string{"fsync": "off", "shared_buffers": "32MB"})}
	s.config.Port = testdir.FreePort(t)
	s.start()
	t.Cleanup(func() { _ = s.Kill() }) // it may have been killed
	conn := s.connect()
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) start() {
	s.t.Helper()
	started, err := localpg.Start(await.Context(s.t), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Server = started
}

// restart kills the server with -9, and starts it again.
func (s *server) restart() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// connect opens a connection, which is closed with the test.
func (s *server) connect() *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// postgresKilled uses a server of its own. A command may fail right after the server was killed,
// because its connection is lost, and is then repeated.
func postgresKilled(j *judgement) {
	s := newServer(j.T, effectsTable)
	p := j.client.start(j.T, s.URL(), handler("g", true, do("effect")...), worker(do("begin", "effect", "complete", "commit")...), run)
	for range 3 {
		for _, c := range []command{publish(20, "k"), enqueue()} {
			await.True(j.T, c.Do+" succeeds", func() bool {
				return p.try(c).Error == ""
			})
		}
		p.await(len(p.heard("end", 0))+1, "end", 0)
		s.restart()
	}
	conn := s.connect()
	const left = `
		select (select count(*) from posthorn.events e where not exists (select from effects f where f.handler = 'g' and f.id = e.id))
			+ (select count(*) from posthorn.jobs where status <> 'COMPLETED')`
	await.True(j.T, "everything has its effect", func() bool { return ask(j.T, conn, left) == 0 })
	p.drain()
	if doubled := ask(j.T, conn, "select count(*) - count(distinct (handler, id)) from effects"); doubled > 0 {
		j.T.Errorf("%d effects are doubled", doubled)
	}
}

// ask returns the number that a query returns.
func ask(t testing.TB, conn *pgx.Conn, sql string) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
