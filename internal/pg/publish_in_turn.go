package pg

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Turn tells a batch when it may pass the points at which batches of one publisher go in
// order, although they are written at the same time on several connections.
type Turn struct {
	// Drawn is called when the ids of the batch are drawn: a batch that begins afterwards
	// gets higher ids. It is not called if the batch fails before.
	Drawn func()
	// MayCommit waits until the batch before has ended, and reports whether that one was
	// committed. It is nil if there is no such batch.
	MayCommit func() bool
}

// ErrOvertaken says that a batch was rolled back because the batch before it failed.
var ErrOvertaken = errors.New("the batch before was not committed")

// PublishInTurn publishes messages in a transaction of its own, on a direct connection. It
// ignores DeliverAt and DedupKey.
func (p *Pool) PublishInTurn(ctx context.Context, namespace string, messages []Message, turn Turn) ([]int64, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, Translate("publish", err)
	}
	defer conn.Release()
	ids, err := publishInTurn(ctx, conn.Conn(), namespace, messages, turn)
	return ids, Translate("publish", err)
}

func publishInTurn(ctx context.Context, conn *pgx.Conn, namespace string, messages []Message, turn Turn) ([]int64, error) {
	ids, err := sendBatch(ctx, conn, namespace, messages, turn)
	switch {
	case err != nil || turn.MayCommit == nil:
		return ids, err
	case !turn.MayCommit():
		rollBack(ctx, conn)
		return nil, ErrOvertaken
	}
	if _, err := conn.Exec(ctx, "commit"); err != nil {
		rollBack(ctx, conn)
		return nil, err
	}
	return ids, nil
}

var publishStatement = statement{
	"posthorn_publish_in_turn",
	"select posthorn.publish_in_turn($1::text, $2::text[], $3::json[], $4::text[], $5::text[], $6::text[], $7::json[])",
}

// sendBatch inserts messages. If the batch has to wait for another one, it leaves the
// transaction open.
func sendBatch(ctx context.Context, conn *pgx.Conn, namespace string, messages []Message, turn Turn) ([]int64, error) {
	conn.PgConn().CustomData()[drawnKey] = turn.Drawn
	defer delete(conn.PgConn().CustomData(), drawnKey)
	s := sessionOf(conn)
	ids := make([]int64, 0, len(messages))
	publish := step{statement: publishStatement, args: s.batch.encode(namespace, messages), decode: appendID(&ids)}
	steps := []step{publish}
	if turn.MayCommit != nil {
		steps = []step{beginStep, publish}
	}
	if err := cmp.Or(s.exchange(ctx, steps)...); err != nil {
		return nil, err
	}
	return ids, nil
}

// The SQLSTATEs of notices: noticeOfIDs is that of publish_in_turn, warningForPeople that of
// calls that have succeeded, and of which somebody should know more than the result.
const noticeOfIDs, warningForPeople = "PH000", "PH006"

const drawnKey = "posthorn drawn"

// onNotice returns a function that receives the notices of connections, and logs warnings for
// people. Those that are not for this package go to other, if that is not nil.
func onNotice(other pgconn.NoticeHandler, log *slog.Logger) pgconn.NoticeHandler {
	return func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		drawn, ok := conn.CustomData()[drawnKey].(func())
		switch {
		case ok && notice.Code == noticeOfIDs:
			drawn()
		case notice.Code == warningForPeople:
			log.Warn(notice.Message, "hint", notice.Hint)
		case other != nil:
			other(conn, notice)
		}
	}
}
