// Package work takes jobs and has them done. It owns who looks for jobs and when,
// that a job stays with its worker while that lives, and that its end is
// recorded. What may be taken, and what becomes of a failed job, is up to the
// functions of the schema.
//
// A [Bell] rings when there may be jobs: one poller, however many wait. Who wants
// to wait for jobs joins it and claims by itself:
//
//	w := bell.Join(namespace, tags) // before the first look, so that no ring is missed
//	defer w.Leave()
//	for {
//		jobs, err := pg.ClaimJobs(…)
//		if err != nil || len(jobs) > 0 {
//			w.Found() // there may be more: the next in line looks
//			return jobs, err
//		}
//		if !w.Wait(ctx) {
//			return nil, ctx.Err() // nothing came
//		}
//	}
//
// Those that join with the same namespace and tags stand in one line, and a ring
// lets only the first of them look: a thousand waiters cost one claim. It
// promises nothing: a ring may find nothing, since a sequence moves before the
// transaction commits that moved it. So it rings again, a few times at growing
// distances and once a second at least.
//
// [Run] works off the jobs of some tags, as a kind of work of package worker. A
// worker claims some at once, in batches where they are short, and handles them side
// by side; what is done is completed together with what other workers have done,
// each fenced by its attempt. A heartbeat extends what is in hand, and finds out
// what was cancelled, reset or lost.
package work
