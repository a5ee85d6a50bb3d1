package guarantee

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

// TestOwnServer holds the tests that need a server of their own, because they kill
// it, create its roles, need another cluster, or need that no other session draws
// transaction ids. They run sequentially, each in a database of its own.
//
// seed 000.5
func TestOwnServer(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	t.Run("ConditionsWithoutSuperuser", func(t *testing.T) { conditionsWithoutSuperuser(t, server) }) // before the roles exist
	server.migrate(t)
	for name, test := range map[string]func(t *testing.T, own *ownDatabase){
		"ArchiveAfterADump":                    archiveAfterADump,
		"CloseByAnOwnerThatSeesLittle":         closeByAnOwnerThatSeesLittle,
		"ClosedNamespaceSurvivesACrash":        closedNamespaceSurvivesACrash,
		"DeletionSurvivesACrash":               deletionSurvivesACrash,
		"CrashLosesNothingThatWasAcknowledged": crashLosesNothingThatWasAcknowledged,
		"CrashWithSubscriptions":               crashWithSubscriptions,
		"CursorFromBeforeACrash":               cursorFromBeforeACrash,
		"CursorFromBeforeAFailover":            cursorFromBeforeAFailover,
		"ForgottenLeaseCannotBeSettled":        forgottenLeaseCannotBeSettled,
		"ForgottenTakeOver":                    forgottenTakeOver,
		"MovesWaitForNobody":                   movesWaitForNobody,
		"NumbersAfterACrash":                   numbersAfterACrash,
		"NumbersAfterADump":                    numbersAfterADump,
		"NumbersAfterADumpOfANewLog":           numbersAfterADumpOfANewLog,
		"NumbersAfterARecovery":                numbersAfterARecovery,
		"RelayAfterARestore":                   relayAfterARestore,
		"RestoreIntoAnotherCluster":            restoreIntoAnotherCluster,
		"RestoreOfStoppedSubscriptions":        restoreOfStoppedSubscriptions,
		"TransactionPastXmax":                  transactionPastXmax,
	} {
		t.Run(name, func(t *testing.T) { test(t, server.database(t)) })
	}
}

// ownServer is a server that tests may kill.
type ownServer struct {
	*localpg.Server
	config    localpg.Config
	databases int
}

// ownDatabase is a database on that server, with Posthorn installed.
type ownDatabase struct {
	server *ownServer
	t      *testing.T
	name   string
}

// startServer starts a server whose commits survive a kill of its processes, without
// fsync. The WAL is not written to disk in the background, so an asynchronous commit
// is lost.
func startServer(t *testing.T) *ownServer {
	t.Helper()
	s := &ownServer{config: testpg.Config(testdir.New(t, "guarantee-").Path, testpg.BinDir(), map[string]string{
		"autovacuum":       "off",
		"fsync":            "off",
		"full_page_writes": "off",
		"shared_buffers":   "32MB",
		"wal_writer_delay": "10s",
	})}
	s.start(t)
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *ownServer) start(t *testing.T) {
	t.Helper()
	var err error
	if s.Server, err = localpg.Start(await.Context(t), s.config); err != nil {
		t.Fatal(err)
	}
}

// migrate creates the template of the tests' databases.
func (s *ownServer) migrate(t *testing.T) {
	t.Helper()
	t.Run("migrate", func(t *testing.T) { // closes its session
		connect(t, s.URL()).migrate()
	})
}

func (s *session) migrate() {
	s.t.Helper()
	if _, err := schema.Migrate(s.t.Context(), s.conn, schema.Options{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *ownServer) urlOf(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

// newDatabase creates a copy of a database.
func (s *ownServer) newDatabase(t *testing.T, from string) *ownDatabase {
	t.Helper()
	s.databases++
	d := &ownDatabase{server: s, t: t, name: fmt.Sprintf("database_%d", s.databases)}
	connect(t, s.urlOf(t, "postgres")).exec("create database " + d.name + " template " + from + " strategy file_copy")
	return d
}

func (s *ownServer) database(t *testing.T) *ownDatabase {
	t.Helper()
	d := s.newDatabase(t, "posthorn")
	d.session().exec("update posthorn.cluster set life = posthorn.life()") // a new installation, and no restored one
	return d
}

func (d *ownDatabase) url() string { return d.server.urlOf(d.t, d.name) }

func (d *ownDatabase) session() *session {
	d.t.Helper()
	return connect(d.t, d.url())
}

// crash kills every process of the server with SIGKILL and starts it again.
func (d *ownDatabase) crash() {
	d.t.Helper()
	if err := d.server.Kill(); err != nil {
		d.t.Fatal(err)
	}
	d.server.start(d.t)
}
