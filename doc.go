// Package posthorn publishes events in the transaction that changes your data, and
// delivers them with the guarantees of a broker. All state is in PostgreSQL: see
// docs/design.md for the design, and docs/guarantees.md for the guarantees.
//
// # Publishing
//
// An event exists if and only if its transaction commits:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		…
//		_, err := ph.Publish(ctx, tx, posthorn.Message{Type: "order.placed", Key: order.ID, Payload: order})
//		return err
//	})
//
// [Client.Publish] takes a pool, a connection or a transaction of pgx or, with [SQL], of
// database/sql. [Client.Publisher] is faster for many events without a transaction.
//
// # Handling
//
// A group is a named position in the log, shared by all processes that use the name. Its
// handlers receive events by type:
//
//	billing := ph.Group("billing", posthorn.GroupConfig{})
//	billing.Handle("charge", "order.placed", charge)
//	billing.HandleTx("ledger", "order.*", book)
//	return ph.Run(ctx)
//
// If a handler returns an error, the event is retried for that handler, after the delays
// in [GroupConfig]. After the last attempt the event is a dead letter, which an operator
// can redrive or purge. [Permanent] and [RetryAfter] decide otherwise for single errors.
//
// The kinds of handlers:
//
//   - [Group.Handle]: at least once, for effects that may be repeated.
//   - [Group.HandleTx]: exactly once, for effects in this database. They commit together
//     with the settlement of the event.
//   - [Group.HandleBatch], [Group.HandleBatchTx]: many events per call.
//   - [On], [OnTx]: with a decoded payload.
//   - Any of these with [Group.Subscribe]: for events that the database selects by tags,
//     by payload or by a condition in SQL.
//   - [Group.Fetch]: for programs that poll.
//
// # Order
//
// Groups are unordered unless [GroupConfig].Order orders them by key, by stream or in
// total. An ordered group never handles two events of one slot at once, in any process. A
// failed event holds back the later events of its slot.
//
// # Jobs and schedules
//
// [Client.Enqueue] writes a job in your transaction: work for exactly one worker, which
// finds it by tags. [Client.Work] and [WorkOn] register handlers of jobs. [Client.WorkTx]
// completes a job in the transaction of its effect, and [Client.WorkBatchTx] many jobs in one
// transaction. [Client.Schedule] publishes an event at the times of a cron expression.
//
// # Reading, projections and brokers
//
//   - [Client.Read]: an iterator over the log, without a group.
//   - [Client.Project]: tables that follow the log, each event exactly once.
//   - [Client.ReplaceProjection]: new tables for a projection, built beside the old ones.
//   - [Client.Relay] and [Client.Import]: events to Redis, NATS or Kafka, and from there.
//   - [Config].Seal: confidential streams, encrypted before they leave the process.
//
// # Running
//
// [Client.Run] makes the process a node. It runs until its context ends. Then handlers
// have [Config].DrainFor to finish, and unfinished events go to other nodes. When a node
// is killed, its events go to other nodes at the deadline of their leases. Nodes need no
// configuration of each other.
//
// # Operating
//
// [Client.Admin] returns package admin: the status of groups, jobs and everything else,
// dead letters, seek, pausing, limits and tokens.
package posthorn
