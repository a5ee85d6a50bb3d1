package main

import (
	"context"
	"fmt"
	"time"
)

// workRows are the rows of systems whose worker processes share work.
func workRows() (all []row) {
	for _, processes := range []int{1, 2, 4, 8} {
		all = append(all, throughputRows("none", "jobs that do nothing", processes)...)
	}
	all = append(all, crowdRows()...)
	all = append(all, idleRows()...)
	all = append(all, nodeRows()...)
	all = append(all, throughputRows("sleep", "jobs of 1 ms", 1)...)
	all = append(all, throughputRows("insert", "jobs with an INSERT", 1)...)
	all = append(all, enqueueRows()...)
	all = append(all, latencyRows()...)
	all = append(all, byteRows()...)
	all = append(all, recoveryRows()...)
	return append(all, sustainedRows()...)
}

// jobPeers are the systems beside which jobs are measured.
var jobPeers = []string{graphileSystem, riverSystem, pgbossSystem}

// inProcesses says how many worker processes a row has.
func inProcesses(n int) string {
	return map[int]string{1: "one process", 2: "two processes", 4: "four processes", 8: "eight processes", 10: "ten processes"}[n]
}

// throughputRows are rows of a task, one beside each of the peers, and one of events
// beside River.
func throughputRows(task, jobs string, processes int) (all []row) {
	s := throughputSitting(fmt.Sprintf("jobs %s %d", task, processes), task, processes)
	in := inProcesses(processes)
	on := chartBar{"work", fmt.Sprintf("%s, %s", jobs, in)}
	for _, peer := range jobPeers {
		system, ours, measured := jobsSystem, "Client.Work", labelOf(peer)+"'s best settings, the same jobs"
		if task == "insert" && peer == riverSystem {
			ours = "Client.WorkTx, the INSERT in the transaction that completes the job"
		} else if task == "insert" { // these peers record the ends of jobs later, so a crash repeats the INSERT
			system, ours = laterSystem, "Client.Work, the INSERT in a transaction of its own"
			measured = labelOf(peer) + "'s best settings, the same"
		}
		all = append(all, s.row(row{
			work:  fmt.Sprintf("%s, %s, beside %s", jobs, in, labelOf(peer)),
			floor: atLeast(1), target: atLeast(1.5), unit: "/s", chart: on,
			ours: ours, peer: measured,
		}, 0, system, peer))
	}
	if task == "insert" {
		all = append(all, s.row(row{
			work: fmt.Sprintf("%s, one transaction a job, %s, beside HandleTx", jobs, in), target: atLeast(0.9), unit: "/s",
			ours: "Client.WorkTx", peer: "HandleTx, events",
		}, 0, jobsSystem, eventsSystem))
		all = append(all, s.row(row{
			work: fmt.Sprintf("%s, WorkBatchTx, %s, beside WorkTx", jobs, in), target: atLeast(1), unit: "/s",
			ours: "Client.WorkBatchTx, one INSERT for the jobs of a batch", peer: "Client.WorkTx, an INSERT in a transaction for each job",
		}, 0, batchesSystem, jobsSystem))
	}
	return append(all, s.row(row{
		work: fmt.Sprintf("events handled as %s, %s, beside River", jobs, in),
		unit: "/s", floor: atLeast(1), chart: on,
		ours: "Handle, or HandleTx for the INSERT", peer: "River's best settings, jobs",
	}, 0, eventsSystem, riverSystem))
}

// throughputSitting measures how much of a task the systems get done in a second.
func throughputSitting(name, task string, processes int) *sitting {
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) measure {
			n := b.longRound(system, task)
			w := b.newWork(ctx, system, task, processes, max(n/2, 100))
			return func(ctx context.Context) []float64 { return []float64{w.throughput(ctx, n)} }
		},
	}
}

// nodeRows are rows of the client for Node beside peers that run on Node too.
func nodeRows() (all []row) {
	s := throughputSitting("node", "none", 1)
	for _, one := range []struct {
		system, work, ours, peer string
		target                   limit
	}{
		{nodeEventsSystem, "events handled in Node", "handle", graphileSystem, atLeast(3)},
		{nodeJobsSystem, "jobs in Node that do nothing", "work", graphileSystem, atLeast(1)},
		{nodeJobsSystem, "jobs in Node that do nothing", "work", pgbossSystem, atLeast(1.5)},
	} {
		all = append(all, s.row(row{
			work: fmt.Sprintf("%s, one process, beside %s", one.work, labelOf(one.peer)), target: one.target, unit: "/s",
			ours: one.ours + " of the client for Node", peer: labelOf(one.peer) + "'s best settings, jobs",
		}, 0, one.system, one.peer))
	}
	return all
}

// jobFraction keeps rounds short: every queue writes a job several times.
const jobFraction = 10

// itemsOf is the number of jobs or events in a round.
func (b *bench) itemsOf(system, task string) int {
	n := b.events / jobFraction
	if task == "sleep" || task == "insert" {
		n /= 4
	} else if systems[system].events {
		n = b.events
	}
	return max(n, 100)
}

// longRound is the number of items in a round that takes a second or more, so that its
// beginning and its end count for little.
func (b *bench) longRound(system, task string) int {
	n := b.itemsOf(system, task)
	if task == "none" && !systems[system].events {
		n *= 3
	}
	return n
}

// enqueueRows measure adding jobs, with no worker.
func enqueueRows() (all []row) {
	s := &sitting{
		name: "enqueue",
		open: func(ctx context.Context, b *bench, system string) measure {
			w := b.openWork(ctx, system, "none", 1)
			return func(ctx context.Context) []float64 { return w.enqueueing(ctx, b.itemsOf(system, "none")) }
		},
	}
	for i, way := range []string{"1,000 at once", "one by one"} {
		for _, peer := range jobPeers {
			all = append(all, s.row(row{
				work: fmt.Sprintf("enqueue jobs %s, beside %s", way, labelOf(peer)), target: atLeast(1), unit: "/s",
				ours: fmt.Sprintf("Client.Enqueue, %d callers", []int{bulkCallers, singleCallers}[i]),
				peer: enqueueWays[peer][i], chart: chartBar{"enqueue", "jobs, " + way},
			}, i, jobsSystem, peer))
		}
	}
	return all
}

// enqueueWays are the peers' fastest ways.
var enqueueWays = map[string][2]string{
	graphileSystem: {"its SQL function add_jobs", "its SQL function add_job"},
	riverSystem:    {"InsertManyFast, which uses COPY", "Insert"},
	pgbossSystem:   {"insert, from Node.js", "send, from Node.js"},
}

// enqueueing measures n jobs in bulk and a quarter of them one by one. They stay until
// the end of the row, in every system.
func (w *work) enqueueing(ctx context.Context, n int) []float64 {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	before, few := w.count(ctx, w.left), max(n/4, 100)
	speed := func(n int, add func(ctx context.Context, n int)) float64 {
		start := time.Now()
		add(ctx, n)
		return float64(n) / time.Since(start).Seconds()
	}
	figures := []float64{speed(n, w.fillUp), speed(few, w.addSingly)}
	expect("new jobs", w.count(ctx, w.left)-before, n+few)
	return figures
}
