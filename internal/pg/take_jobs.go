package pg

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
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

// DoneJobs are jobs of one worker that have succeeded.
type DoneJobs struct {
	IDs              []int64
	Attempts         []int32
	ExecutionTimesMS []int64
}

// TakenJobs is the answer to a [JobTake]. Each of the two transactions may fail alone.
type TakenJobs struct {
	Completed     []int64 // those of the done jobs that the worker had, also with an ErrUnconfirmed
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
	if err != nil {
		err = fmt.Errorf("take jobs: %w", err)
		return TakenJobs{CompleteError: err, ClaimError: err}
	}
	defer conn.Release()
	return sessionOf(conn.Conn()).takeJobs(ctx, take)
}

var (
	completeJobsStatement = statement{"posthorn_complete_jobs", completeJobsSQL}
	claimJobsStatement    = statement{"posthorn_claim_jobs", claimJobsSQL}
)

func (s *session) takeJobs(ctx context.Context, take JobTake) (taken TakenJobs) {
	done := take.Done
	taken.Completed = make([]int64, 0, len(done.IDs))
	var texts buffer
	errs := s.exchange(ctx,
		[]step{{
			statement: completeJobsStatement,
			args:      []any{take.Worker, done.IDs, done.Attempts, done.ExecutionTimesMS},
			decode:    appendID(&taken.Completed),
		}},
		[]step{{
			statement: claimJobsStatement,
			args:      []any{take.Namespace, take.Worker, tagsOf(take.Tags), take.MaxJobs, Period(take.LeaseFor)},
			decode: func(values [][]byte) bool {
				if taken.Jobs == nil {
					taken.Jobs = make([]ClaimedJob, 0, min(take.MaxJobs, 1000))
				}
				taken.Jobs = append(taken.Jobs, ClaimedJob{})
				return s.decodeJob(values, &taken.Jobs[len(taken.Jobs)-1], &texts)
			},
		}})
	taken.CompleteError, taken.ClaimError = Translate("complete jobs", errs[0]), Translate("claim jobs", claimError(errs[1]))
	if !IsCommitted(taken.CompleteError) { // rows may have arrived before their transaction failed to commit
		taken.Completed = nil
	}
	if taken.ClaimError != nil {
		taken.Jobs = nil
	}
	return taken
}

// decodeJob decodes the columns of jobFields in the binary format. The next row overwrites
// the values, so they are copied.
func (s *session) decodeJob(values [][]byte, j *ClaimedJob, texts *buffer) bool {
	const columns = 15
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
	if values[13] != nil {
		j.Progress = texts.copy(values[13])
	}
	if values[14] != nil {
		j.Steps = texts.copy(values[14])
	}
	return ok
}
