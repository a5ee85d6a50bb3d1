package guarantee

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// Sessions share server connections, so no state may remain in a session between two
// transactions. Prepared statements remain, hence these query modes.
func TestBehindTransactionPooler(t *testing.T) {
	t.Parallel()
	address := testpg.Pooler(t, posthorntest.Database(t))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			sessions := make([]*session, 5) // more than server connections
			for i := range sessions {
				sessions[i] = connectPooled(t, address, mode)
			}
			s := sessions[0]
			name := "group " + mode.String()
			id := value[int64](s, "select posthorn.define_group('default', $1::text)", name)

			var want, got []int64
			for i, publisher := range sessions {
				publisher.exec("begin")
				want = append(want, value[int64](publisher, "select posthorn.publish('default', 'e', key => $1::text)", fmt.Sprint(i)))
				publisher.exec("commit")
			}
			for i := range want {
				l, err := sessions[(i+1)%5].tryClaim(name, 1)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, l.Events...)
				if i%2 == 0 {
					sessions[(i+2)%5].exec("select posthorn.settle($1::bigint, $2::int)", l.ID, l.Attempt)
				} else {
					sessions[(i+3)%5].exec("select posthorn.extend($1::bigint, $2::int, '1 minute')", l.ID, l.Attempt)
					sessions[(i+2)%5].exec("select posthorn.settle($1::bigint, $2::int)", l.ID, l.Attempt)
				}
			}
			equal(t, "events", got, want)
			taken := s.publish()
			equal(t, "events by take", sessions[3].take(id), []int64{taken})
		})
	}
}

func connectPooled(t *testing.T, address string, mode pgx.QueryExecMode) *session {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &session{t: t, conn: conn}
}

// take claims as programs do: two statements in one round trip.
func (s *session) take(group int64) []int64 {
	s.t.Helper()
	var token pgtype.UUID
	rand.Read(token.Bytes[:])
	token.Valid = true
	batch := &pgx.Batch{}
	batch.Queue("select posthorn.take($1::bigint, 'w', 10, '1 minute', $2::uuid)", group, token)
	var events []int64
	batch.Queue("select event_id from posthorn.lease_events($1::uuid)", token).Query(func(rows pgx.Rows) error {
		var err error
		events, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := s.conn.SendBatch(s.t.Context(), batch).Close(); err != nil {
		s.t.Fatalf("take: %v", err)
	}
	return events
}
