// Package posthorntest gives tests a real PostgreSQL server and a database of
// their own.
//
// The server is started when a test of the process first asks for one, shared
// by all tests of the process, and gone when the process has ended, however it
// ends. A database per test keeps tests apart, also where they run in parallel:
// notifications and advisory locks do not cross databases.
//
// Two environment variables change which server that is:
//
//	POSTHORN_TEST_DATABASE_URL  use this server; the role must be a superuser.
//	                            Any number of processes may share it.
//	POSTHORN_TEST_PG_BIN        start the server from this directory's binaries.
//
// Tests that stop or crash their server run one with package localpg.
package posthorntest
