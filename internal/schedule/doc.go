// Package schedule searches the interleavings of short SQL scripts for one that breaks a
// promise. A scenario has a few sessions, each a list of SQL statements. The driver sends one
// statement at a time to a real Postgres, waits until it has ended or waits for a lock, and
// chooses the session that goes on: a schedule. A model of the promises says what is wrong
// with the outcomes. The same choices give the same schedule again.
//
// The package owns the server, the clock, the driver, the points at which a session stops
// inside a function, and the searches. It knows no function of Posthorn but the clock:
// package promise is the model, and package scenarios has the scripts. It has nothing to do
// with scheduled tasks.
//
// Some things are as they are for a reason:
//   - Transaction ids and snapshots belong to a whole cluster, so each driver has a server of
//     its own, without autovacuum.
//   - posthorn.now() reads an unlogged sequence. It moves at once for all sessions, whatever
//     their snapshots, and draws no transaction id: a harness that draws ids puts each running
//     transaction below the xmax of the snapshots that follow, which hides a class of faults.
//   - Publishes of two open transactions are two choices, not one: the order of ids and
//     transaction ids is what late commits are about.
//   - Two sessions that wait for one commit run at once when it comes. A replay of such a
//     schedule may stray, which is rare.
package schedule
