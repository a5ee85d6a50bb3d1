// Package posthorntest helps to test programs that use Posthorn, on a real PostgreSQL
// server with a database for each test.
//
//	ph := posthorntest.Open(t)
//	setUp(ph)                             // your groups and handlers
//	posthorntest.Run(t, ph)               // until the test ends
//	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
//	posthorntest.Drain(t, ph)             // until all due work is done
//	posthorntest.State(t, ph, id, "billing")
//	posthorntest.Advance(t, ph, time.Hour) // work that is due in an hour becomes due
//	posthorntest.Published(t, ph, "order.*")
//
// Tests never sleep: [Drain] waits for the handlers, and [Advance] and [SetClock] set
// Posthorn's clock. [Main] detects goroutines and connections that outlive their
// test. A test without a client uses a [Database] directly.
//
// The first test that needs a server starts it. All tests of the process share it,
// and it ends with the process, even if the process is killed. Each test has a
// database of its own, so tests can run in parallel: notifications and advisory locks
// do not cross databases. Creating a database takes tens of milliseconds.
//
// Two environment variables select another server:
//
//	POSTHORN_TEST_DATABASE_URL  use this server; the role must be a superuser.
//	                            Any number of processes may share it.
//	POSTHORN_TEST_PG_BIN        start the server from this directory's binaries.
//
// Tests that stop or crash their server start one with package localpg.
package posthorntest
