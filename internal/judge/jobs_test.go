package judge

import (
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

func jobRetry(j *judgement) {
	p := j.start(worker(times(2, "error"), action{Do: "step_tx", Name: "charge"}, action{Do: "result"}).patient(), run)
	id := p.send(enqueue())[0]
	j.awaitJob(id, "COMPLETED")
	testworld.Equal(j.T, "failures", testworld.Ask[int](j, "select retry_count from posthorn.jobs where id = $1", id), 2)
	j.equalResult(id, `{"charge": "attempt 3"}`)
	p.drain()

	p = j.start(worker(do("permanent")...).patient(), run)
	id = p.send(enqueue())[0]
	j.awaitJob(id, "FAILED")
	p.drain()
	testworld.Equal(j.T, "calls", len(p.heard("begin", id)), 1)
}

func (j *judgement) equalResult(id int64, want string) {
	j.T.Helper()
	if !testworld.Ask[bool](j, "select coalesce(result::jsonb = $2::jsonb, false) from posthorn.jobs where id = $1", id, want) {
		j.T.Errorf("the result of job %d is %s, want %s", id, testworld.Ask[string](j, "select coalesce(result::text, 'nothing') from posthorn.jobs where id = $1", id), want)
	}
}

// The process is killed behind each step.
func jobSteps(j *judgement) {
	charge, book := action{Do: "step", Name: "charge"}, action{Do: "step_tx", Name: "book"}
	p := j.start(worker(charge, action{Do: "hold"}), run)
	id := p.send(enqueue())[0]
	p.await(1, "hold", id)
	p.Kill()
	p = j.start(worker(charge, book, action{Do: "hold"}), run)
	p.await(1, "hold", id)
	p.Kill()
	p = j.start(worker(charge, book, action{Do: "result"}), run)
	j.awaitJob(id, "COMPLETED")
	p.drain()
	testworld.Equal(j.T, "steps that were made", testworld.Column[string](j, "select name from effects order by n"), []string{"charge", "book"})
	j.equalResult(id, `{"charge": "attempt 1", "book": "attempt 2"}`)
}

func jobSleep(j *judgement) {
	p := j.start(worker(
		action{Do: "step", Name: "before"}, action{Do: "sleep", Name: "an hour", MS: 3600_000}, action{Do: "step", Name: "after"}, action{Do: "result"},
	).patient(), run)
	id := p.send(enqueue())[0]
	j.awaitWithoutWorker(p, id)
	testworld.Equal(j.T, "steps before the sleep", testworld.Column[string](j, "select name from effects"), []string{"before"})
	j.TurnClock(2 * time.Hour)
	j.awaitJob(id, "COMPLETED")
	p.drain()
	testworld.Equal(j.T, "steps", testworld.Column[string](j, "select name from effects order by n"), []string{"before", "after"})
	j.equalResult(id, `{"before": "attempt 1", "after": "attempt 2"}`)
}

// awaitWithoutWorker waits until the first attempt at a job has ended, and no worker has the job.
func (j *judgement) awaitWithoutWorker(p *process, id int64) {
	j.T.Helper()
	p.await(1, "end", id)
	j.awaitJob(id, "PENDING")
	testworld.Equal(j.T, "failures", testworld.Ask[int](j, "select retry_count from posthorn.jobs where id = $1", id), 0)
}

// One event comes after the job waits, the other one before.
func jobAwait(j *judgement) {
	p := j.start()
	id := p.send(enqueue())[0]
	early := p.send(publish(1, "early"))[0]
	await := func(key string) action {
		return action{Do: "await", Name: key, Type: "judged.event", Key: key, MS: 3600_000}
	}
	p.do(worker(await("early"), await("late"), action{Do: "result"}))
	p.do(run)
	j.awaitWithoutWorker(p, id)
	p.send(publish(1, "another"))
	late := p.send(publish(1, "late"))[0]
	j.awaitJob(id, "COMPLETED")
	p.drain()
	j.equalResult(id, fmt.Sprintf(`{"early": "%d", "late": "%d"}`, early, late))
}

func jobInTransaction(j *judgement) {
	p := j.start(worker(do("begin", "effect", "complete", "hold")...), run)
	id := p.send(enqueue())[0]
	p.await(1, "hold", id)
	p.Kill()
	p = j.start(worker(do("begin", "effect", "complete", "commit", "hold")...), run)
	p.await(1, "hold", id)
	p.Kill()
	j.awaitJob(id, "COMPLETED")
	p = j.start(worker(do("begin", "effect", "complete", "commit")...), run)
	next := p.send(enqueue())[0]
	j.awaitJob(next, "COMPLETED")
	p.drain()
	testworld.Equal(j.T, "effects", j.effects("t"), []int64{id, next})
	testworld.Equal(j.T, "calls after the job was completed", len(p.heard("begin", id)), 0)
}
