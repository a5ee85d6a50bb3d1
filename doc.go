// Package posthorn publishes events in the transaction that changes your data,
// and handles them with a broker's guarantees. All of it lives in PostgreSQL: see
// docs/design.md for how, and docs/guarantees.md for what is promised.
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
// [Client.Publish] takes a pool, a connection or a transaction, and through [SQL]
// those of database/sql.
//
// # Handling
//
// A group is a named position in the log, shared by all processes that use the
// name. Its handlers answer to subscriptions, which are their names:
//
//	billing := ph.Group("billing", posthorn.GroupConfig{})
//	billing.Handle("charge", "order.placed", charge)
//	billing.HandleTx("ledger", "order.*", book)
//	return ph.Run(ctx)
//
// A handler that returns an error gets its event again, after the delays of the
// group and at most as often as the group says; then the event is a dead letter,
// which is kept until an operator redrives or purges it. [Permanent] and
// [RetryAfter] say more than other errors. Other handlers of the event are not
// concerned.
//
// Which form of handler:
//
//   - [Group.Handle]: at least once. For what is harmless to repeat.
//   - [Group.HandleTx]: exactly once, for effects in this database: they commit
//     together with the acknowledgement.
//   - [Group.HandleBatch], [Group.HandleBatchTx]: many events in one call, where
//     a call is dear.
//   - [On], [OnTx]: with the payload decoded.
//   - [Group.Subscribe], and any of these: for events that the database finds, by
//     tags, by what the payload holds, or by a condition in SQL.
//   - [Group.Fetch]: for programs that ask for events instead of being called.
//
// # Order
//
// Groups are unordered unless [GroupConfig].Order says otherwise: by key, by
// stream, or all of them. Ordered groups never handle two events of one slot
// at once, over all processes, and a failed event holds back what comes after it
// in its slot.
//
// # Jobs and schedules
//
// [Client.Enqueue] writes a job in your transaction: work for exactly one worker, found
// by its tags. [Client.Work] and [WorkOn] do jobs; [Job.Complete] finishes one in the
// transaction of its effect. [Client.Schedule] publishes an event at the times of a cron
// expression.
//
// # Reading, tables and brokers
//
//   - [Client.Read]: the log without a group, as an iterator that follows if asked.
//   - [Client.Project]: a table that follows the log, exactly once per event.
//   - [Client.Replace]: the same table built anew beside the old one.
//   - [Client.Relay] and [Client.Import]: events to and from Redis or NATS.
//   - [Config].Seal: confidential streams, sealed before they leave the process.
//
// # Running
//
// [Client.Run] makes the process a node. It returns when its context ends and all
// handlers have, within [Config].DrainFor; the rest goes to other nodes at once. When a
// node is killed, its events go to other nodes at the deadline of their leases. Nodes
// need no configuration of each other.
//
// # Operating
//
// [Client.Admin] returns package admin: where groups, jobs and everything else stand,
// dead letters, seek, pausing, limits, tokens.
package posthorn
