package pg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// JobTake describes the jobs to take.
type JobTake struct {
	Namespace string
	Worker    string
	Tags      []string
	MaxJobs   int
	LeaseFor  time.Duration
	Done      DoneJobs // completed first, in a transaction of their own
}

// DoneJobs are jobs of one worker that have succeeded without a result.
type DoneJobs struct {
	IDs              []int64
	Attempts         []int32
	ExecutionTimesMS []int64
}

// TakenJobs is the answer to a [JobTake]. Each of the two transactions may fail alone.
type TakenJobs struct {
	Completed     []int64 // those of the done jobs that the worker had
	CompleteError error
	Jobs          []ClaimedJob
	ClaimError    error
}

// TakeJobs completes jobs and claims others, in one round trip of two transactions: the
// first one waits for the disk, and the second one does not.
func (p *Pool) TakeJobs(ctx context.Context, take JobTake) TakenJobs {
	var taken TakenJobs
	if len(take.Done.IDs) == 0 || !p.direct { // a pooler may give each transaction another connection
		if len(take.Done.IDs) > 0 {
			taken.Completed, taken.CompleteError = CompleteJobs(ctx, p, take.Worker, take.Done)
		}
		taken.Jobs, taken.ClaimError = ClaimJobs(ctx, p, take.Namespace, take.Worker, take.Tags, take.MaxJobs, take.LeaseFor)
		return taken
	}
	conn, err := p.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = takeJobsOn(ctx, conn.Conn(), take, &taken)
	}
	if err != nil {
		err = fmt.Errorf("take jobs: %w", err)
		taken.CompleteError, taken.ClaimError = err, err
	}
	return taken
}

var completeJobsStatement = statement{
	name:       "posthorn_complete_jobs",
	sql:        "select posthorn.complete_jobs($1, $2, $3, $4)",
	parameters: []uint32{pgtype.TextOID, pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID},
}

var claimJobsStatement = statement{
	name:       "posthorn_claim_jobs",
	sql:        "select" + jobFields + "from posthorn.claim_jobs($1, $2, $3, $4, $5)",
	parameters: []uint32{pgtype.TextOID, pgtype.TextOID, pgtype.TextArrayOID, pgtype.Int4OID, pgtype.IntervalOID},
}

// takeJobsOn returns an error if neither of the two transactions can be said to have
// ended.
func takeJobsOn(ctx context.Context, conn *pgx.Conn, take JobTake, taken *TakenJobs) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	session, err := sessionOf(ctx, conn)
	if err == nil {
		err = session.prepare(ctx, conn, completeJobsStatement, claimJobsStatement)
	}
	if err != nil {
		return err
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	done := take.Done
	for _, call := range []struct {
		statement
		values []any
	}{
		{completeJobsStatement, []any{take.Worker, done.IDs, done.Attempts, done.ExecutionTimesMS}},
		{claimJobsStatement, []any{take.Namespace, take.Worker, tagsOf(take.Tags), int32(take.MaxJobs), take.LeaseFor}},
	} {
		parameters, err := call.encode(conn.TypeMap(), call.values)
		if err != nil {
			_ = pipeline.Close()
			return err
		}
		session.send(pipeline, call.statement, parameters...)
		pipeline.SendPipelineSync() // ends the transaction
	}
	if err := pipeline.Flush(); err != nil {
		_ = pipeline.Close()
		return err
	}
	taken.Completed = make([]int64, 0, len(done.IDs))
	taken.CompleteError = receiveRows(conn, pipeline, "complete jobs", appendID(&taken.Completed))
	var texts buffer
	taken.ClaimError = receiveRows(conn, pipeline, "claim jobs", func(values [][]byte) bool {
		if taken.Jobs == nil {
			taken.Jobs = make([]ClaimedJob, 0, min(take.MaxJobs, 1000))
		}
		taken.Jobs = append(taken.Jobs, ClaimedJob{})
		return session.decodeJob(values, &taken.Jobs[len(taken.Jobs)-1], &texts)
	})
	_ = pipeline.Close() // an error was returned by one of the two
	session.forget(ctx, conn, taken.CompleteError)
	session.forget(ctx, conn, taken.ClaimError)
	return nil
}

// encode encodes the parameters of a statement in the binary format.
func (s statement) encode(types *pgtype.Map, values []any) ([][]byte, error) {
	encoded := make([][]byte, len(values))
	for i, value := range values {
		var err error
		if encoded[i], err = types.Encode(s.parameters[i], pgx.BinaryFormatCode, value, nil); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// receiveRows decodes the rows of one transaction of a pipeline, up to its end.
func receiveRows(conn *pgx.Conn, pipeline *pgconn.Pipeline, verb string, decode func(values [][]byte) bool) (failure error) {
	for {
		result, err := pipeline.GetResults()
		switch result := result.(type) {
		case *pgconn.ResultReader:
			err = decodeRows(result, decode)
		case *pgconn.PipelineSync:
			return Translate(verb, failure)
		case nil:
			if err == nil {
				err = errFormat
			}
		}
		if failure == nil {
			failure = err
		}
		if conn.IsClosed() || errors.Is(err, errFormat) {
			return Translate(verb, failure)
		}
	}
}

// decodeJob decodes the columns of jobFields in the binary format. The next row overwrites
// the values, so they are copied.
func (s *session) decodeJob(values [][]byte, j *ClaimedJob, texts *buffer) bool {
	const columns = 13
	sizes := [columns]int{0: 8, 1: 4, 7: 4, 8: 4, 9: 4, 10: 8, 11: 8, 12: 8} // of those that are not texts
	if len(values) != columns {
		return false
	}
	for i, size := range sizes {
		if size > 0 && len(values[i]) != size {
			return false
		}
	}
	b := binary.BigEndian
	j.ID = int64(b.Uint64(values[0]))
	j.Attempt = int(int32(b.Uint32(values[1])))
	j.Title = s.intern(values[2])
	j.Description = string(values[3])
	var ok bool
	j.Tags, ok = textArray(values[4])
	j.Payload = texts.copy(values[5])
	if values[6] != nil {
		j.Metadata = texts.copy(values[6])
	}
	j.Priority = int(int32(b.Uint32(values[7])))
	j.RetryCount = int(int32(b.Uint32(values[8])))
	j.MaxRetries = int(int32(b.Uint32(values[9])))
	j.RunAt = timeOf(int64(b.Uint64(values[10])))
	j.CreatedAt = timeOf(int64(b.Uint64(values[11])))
	j.LeaseUntil = timeOf(int64(b.Uint64(values[12])))
	return ok
}
