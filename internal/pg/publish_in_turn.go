package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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
	case turn.MayCommit == nil:
		return ids, err
	case err != nil:
		rollBack(ctx, conn)
		return nil, err
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

// sendBatch inserts messages. If the batch has to wait for another one, it leaves the
// transaction open.
func sendBatch(ctx context.Context, conn *pgx.Conn, namespace string, messages []Message, turn Turn) ([]int64, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	session, err := sessionOf(ctx, conn)
	if err == nil {
		err = session.prepare(ctx, conn, publishStatement)
	}
	if err != nil {
		return nil, err
	}
	conn.PgConn().CustomData()[drawnKey] = turn.Drawn
	defer delete(conn.PgConn().CustomData(), drawnKey)
	pipeline := conn.PgConn().StartPipeline(ctx)
	if turn.MayCommit != nil {
		session.send(pipeline, beginStatement)
	}
	session.send(pipeline, publishStatement, session.batch.encode(namespace, messages)...)
	ids, err := receiveIDs(pipeline, len(messages))
	if err != nil {
		session.forget(ctx, conn, err)
	}
	return ids, err
}

func receiveIDs(pipeline *pgconn.Pipeline, n int) (ids []int64, err error) {
	defer func() {
		if closeErr := pipeline.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := pipeline.Sync(); err != nil {
		return nil, err
	}
	rows, err := nextRows(pipeline)
	if err != nil {
		return nil, err
	}
	ids = make([]int64, 0, n)
	err = decodeRows(rows, appendID(&ids))
	return ids, err
}

var publishStatement = statement{
	name: "posthorn_publish_in_turn",
	sql:  "select posthorn.publish_in_turn($1, $2, $3, $4, $5, $6, $7)",
	parameters: []uint32{
		pgtype.TextOID, pgtype.TextArrayOID, pgtype.JSONArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID,
		pgtype.TextArrayOID, pgtype.JSONArrayOID,
	},
}

// noticeOfIDs is the SQLSTATE of the notice of publish_in_turn.
const noticeOfIDs = "PH000"

const drawnKey = "posthorn drawn"

// onNotice returns a function that receives the notices of connections. Those that are not
// for this package go to other, if that is not nil.
func onNotice(other pgconn.NoticeHandler) pgconn.NoticeHandler {
	return func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		drawn, ok := conn.CustomData()[drawnKey].(func())
		switch {
		case ok && notice.Code == noticeOfIDs:
			drawn()
		case other != nil:
			other(conn, notice)
		}
	}
}
