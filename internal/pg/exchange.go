package pg

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// step is a statement of an exchange.
type step struct {
	statement
	args   []any                      // a value of type encoded is sent as it is
	decode func(values [][]byte) bool // reads a row, see decodeRows; nil: the rows are skipped

	description *pgconn.StatementDescription
	parameters  [][]byte // args in binary format
}

// encoded is a value in the binary format of its type; nil is null.
type encoded []byte

var (
	beginStep  = step{statement: statement{"posthorn_begin", "begin"}}
	commitStep = step{statement: statement{"posthorn_commit", "commit"}}
)

// exchange sends the statements of all parts at once, and then receives their results: one
// round trip. A batch of pgx is one too, but inspects the type of every value of every row.
//
// Each part ends with a Sync of the protocol and is a transaction, which fails alone. The
// server answers a Sync at once, which wakes this process before the next part has rows.
// Where that matters, one part has two transactions: steps begin and commit the first one,
// so that its locks are released before the second one runs, which is skipped if the first
// one fails. A part that begins a transaction and does not commit it leaves it open. A part
// of several steps must be the last one: pgx mixes up results behind an error in it.
//
// exchange returns the first error of each part. All parts have the same error if a statement
// cannot be prepared, or if the connection breaks before their results arrive. A part that
// fails leaves no transaction open, but may have decoded rows before.
func (s *session) exchange(ctx context.Context, parts ...[]step) []error {
	ctx, cancel := limited(ctx)
	defer cancel()
	noteStatements(s.conn, 1)
	defer noteStatements(s.conn, -1)
	for _, part := range parts {
		if err := s.prepare(ctx, part); err != nil {
			return slices.Repeat([]error{err}, len(parts))
		}
	}
	errs := s.sendAndReceive(ctx, parts)
	for _, err := range errs {
		if err != nil {
			rollBack(ctx, s.conn)
			s.forget(ctx, err)
		}
	}
	return errs
}

// prepare prepares the statements that the session lacks, and encodes the arguments of all.
func (s *session) prepare(ctx context.Context, part []step) (err error) {
	for i := range part {
		step := &part[i]
		if step.description, err = s.describe(ctx, step.statement); err != nil {
			return err
		}
		if step.parameters, err = encode(s.conn.TypeMap(), step.description.ParamOIDs, step.args); err != nil {
			return err
		}
	}
	return nil
}

func encode(types *pgtype.Map, oids []uint32, args []any) ([][]byte, error) {
	parameters := make([][]byte, len(args))
	for i, arg := range args {
		value, ok := arg.(encoded)
		if !ok {
			var err error
			if value, err = types.Encode(oids[i], pgx.BinaryFormatCode, arg, make([]byte, 0, 16)); err != nil { // nil would be null
				return nil, err
			}
		}
		parameters[i] = value
	}
	return parameters, nil
}

var binaryFormat = []int16{pgx.BinaryFormatCode}

func (s *session) sendAndReceive(ctx context.Context, parts [][]step) []error {
	pipeline := s.conn.PgConn().StartPipeline(ctx)
	for _, part := range parts {
		for _, step := range part {
			pipeline.SendQueryStatement(step.description, step.parameters, binaryFormat, binaryFormat)
		}
		pipeline.SendPipelineSync()
	}
	errs := make([]error, len(parts))
	broken := pipeline.Flush()
	for i, part := range parts {
		if errs[i] = broken; broken != nil {
			continue
		}
		errs[i], broken = s.receive(pipeline, part)
	}
	_ = pipeline.Close() // its error was returned by a part
	return errs
}

// receive reads the results of a part, up to its Sync. It returns the first error, and the
// one with which the connection has broken.
func (s *session) receive(pipeline *pgconn.Pipeline, part []step) (failure, broken error) {
	for i := 0; ; i++ {
		result, err := pipeline.GetResults()
		switch result := result.(type) {
		case *pgconn.ResultReader:
			err = decodeRows(result, part[i].decode)
		case *pgconn.PipelineSync:
			return failure, nil
		case nil:
			if err == nil {
				err = errors.New("a result is missing")
				return cmp.Or(failure, err), err
			}
		}
		if failure = cmp.Or(failure, err); s.conn.IsClosed() {
			return failure, cmp.Or(err, failure)
		}
	}
}

var errFormat = errors.New("a row does not have the expected format")

// decodeRows calls a function with the values of each row in binary format, which the next
// row overwrites. The function reports whether they have the expected format.
func decodeRows(rows *pgconn.ResultReader, decode func(values [][]byte) bool) error {
	for decode != nil && rows.NextRow() {
		if !decode(rows.Values()) {
			return errFormat
		}
	}
	_, err := rows.Close()
	return err
}

// integers decodes a row of integers and bigints.
func integers(values [][]byte, into ...*int64) bool {
	if len(values) != len(into) {
		return false
	}
	for i, value := range values {
		switch len(value) {
		case 4:
			*into[i] = int64(int32(binary.BigEndian.Uint32(value)))
		case 8:
			*into[i] = int64(binary.BigEndian.Uint64(value))
		default:
			return false
		}
	}
	return true
}

// appendID returns a function for decodeRows that appends the bigint of each row.
func appendID(ids *[]int64) func(values [][]byte) bool {
	return func(values [][]byte) bool {
		*ids = append(*ids, 0)
		return integers(values, &(*ids)[len(*ids)-1])
	}
}

// rollBack ends the transaction that an error has left open. If that fails, the pool closes
// the connection.
func rollBack(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback")
	}
}
