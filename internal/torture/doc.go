// Package torture loads a log from all sides and then checks what became of
// every event.
//
// Publishers overlap, dawdle, roll back, use savepoints and prepared
// transactions; workers of groups in every order settle, fail, let leases
// expire, die, and settle what is no longer theirs; backends are terminated in
// the middle of it, and with [Config.Crash] all of Postgres is. The clients
// remember what they were told, the log says what is true, and [Run] compares:
//
//	lost       acknowledged, yet not in the log, or owed to a group and never handled
//	invented   in the log or handed out, though never published
//	doubled    settled twice, settled by a worker that had lost its lease, or
//	           handed out again after it was settled
//	misordered handed out or handled before something that it depends on
//	overlapped two leases of one slot in flight at once
//	overdone   delivered more often than the policy allows, or buried too early
//
// What each client does follows from the seed; how they interleave does not, so
// a seed makes a failure likely to come again, not certain.
//
// Guarantees that a test can provoke with two connections are in package
// guarantee.
package torture
