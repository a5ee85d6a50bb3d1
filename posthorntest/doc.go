// Package posthorntest helps to test programs that use Posthorn, on a real
// PostgreSQL server and a database of the test's own.
//
//	ph := posthorntest.Open(t)
//	setUp(ph)                             // your groups and handlers
//	posthorntest.Run(t, ph)               // until the test ends
//	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
//	posthorntest.Drain(t, ph)             // until nothing is left to do
//	posthorntest.State(t, ph, id, "billing")
//	posthorntest.Advance(t, ph, time.Hour) // what was due in an hour is due now
//	posthorntest.Published(t, ph, "order.*")
//
// Tests never sleep: [Drain] waits for the handlers, and [Advance] and
// [SetClock] move the clock by which Posthorn decides. [Main] finds goroutines
// and connections that tests have left. Tests that need no client take a
// [Database] and go their own way.
//
// The server is started when a test of the process first asks for one, shared
// by all tests of the process, and gone when the process has ended, however it
// ends. A database per test keeps tests apart, also where they run in parallel:
// notifications and advisory locks do not cross databases. It takes tens of
// milliseconds.
//
// Two environment variables change which server that is:
//
//	POSTHORN_TEST_DATABASE_URL  use this server; the role must be a superuser.
//	                            Any number of processes may share it.
//	POSTHORN_TEST_PG_BIN        start the server from this directory's binaries.
//
// Tests that stop or crash their server run one with package localpg.
package posthorntest
