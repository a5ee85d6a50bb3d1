package scenarios

import (
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func claimWithSteps(worker string) step {
	return step{Op: promise.ClaimJobs{}, Takes: true, SQL: fmt.Sprintf("select id, attempt, steps from posthorn.claim_jobs('{ns}', '%s', array['x'], 1)", worker)}
}

func save(worker, name string) step {
	return step{Op: promise.SaveStep{Name: name}, SQL: fmt.Sprintf("select posthorn.save_step({job}, '%s', '%s', '1', {attempt})", worker, name)}
}

// Steps of jobs.
var steps = []*schedule.Scenario{
	{
		Name: "steps", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", "")}, Drain: []step{claimWithSteps("drain"), complete("drain")}, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimWithSteps("w"), begin, save("w", "one"), commit, save("w", "two"), failJob("w")),
			run("W2", claimWithSteps("w"), begin, save("w", "one"), rollback, save("w", "two"), complete("w")),
			run("T", wait(301*time.Second)),
		},
	},
}
