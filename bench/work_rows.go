package main

import (
	"context"
	"fmt"
	"time"
)

// workRows are the rows of systems whose worker processes share work.
func workRows() (all []row) {
	for _, processes := range []int{1, 2, 4, 8} {
		all = append(all, throughputRows("none", "jobs that do nothing", processes, graphileSystem, riverSystem, pgbossSystem)...)
	}
	all = append(all, crowdRows()...)
	all = append(all, idleRows()...)
	all = append(all, nodeRows()...)
	all = append(all, throughputRows("sleep", "jobs of 1 ms", 1, graphileSystem, riverSystem, pgbossSystem)...)
	all = append(all, throughputRows("insert", "jobs with an INSERT", 1, graphileSystem, riverSystem, pgbossSystem)...)
	all = append(all, enqueueRows()...)
	all = append(all, latencyRows()...)
	all = append(all, byteRows()...)
	all = append(all, recoveryRows()...)
	return append(all, sustainedRows()...)
}

// inProcesses says how many worker processes a row has.
func inProcesses(n int) string {
	return map[int]string{1: "one process", 2: "two processes", 4: "four processes", 8: "eight processes", 10: "ten processes"}[n]
}

// throughputRows are rows of a task, one beside each of the peers, and one of events
// beside River.
func throughputRows(task, jobs string, processes int, peers ...string) (all []row) {
	s := throughputSitting(fmt.Sprintf("jobs %s %d", task, processes), task, processes)
	on := bars("work", fmt.Sprintf("%s, %s", jobs, inProcesses(processes)))
	for _, peer := range peers {
		system, ours, measured := jobsSystem, "Client.Work", systemNames[peer]+"'s best settings, the same jobs"
		if task == "insert" && peer == riverSystem {
			ours = "Client.WorkTx, the INSERT in the transaction that completes the job"
		} else if task == "insert" { // these peers record the ends of jobs later, so a crash repeats the INSERT
			system, ours = laterSystem, "Client.Work, the INSERT in a transaction of its own"
			measured = systemNames[peer] + "'s best settings, the same"
		}
		all = append(all, s.row(row{
			work:  fmt.Sprintf("%s, %s, beside %s", jobs, inProcesses(processes), systemNames[peer]),
			floor: atLeast(1), target: atLeast(1.5), unit: "/s", chart: on,
			ours: ours, peer: measured,
		}, 0, system, peer))
	}
	if task == "insert" {
		all = append(all, s.row(row{
			work: fmt.Sprintf("%s, one transaction a job, %s, beside HandleTx", jobs, inProcesses(processes)), target: atLeast(0.9), unit: "/s",
			ours: "Client.WorkTx", peer: "HandleTx, events",
		}, 0, jobsSystem, eventsSystem))
		all = append(all, s.row(row{
			work: fmt.Sprintf("%s, WorkBatchTx, %s, beside WorkTx", jobs, inProcesses(processes)), target: atLeast(1), unit: "/s",
			ours: "Client.WorkBatchTx, one INSERT for the jobs of a batch", peer: "Client.WorkTx, an INSERT in a transaction for each job",
		}, 0, batchesSystem, jobsSystem))
	}
	return append(all, s.row(row{
		work: fmt.Sprintf("events handled as %s, %s, beside River", jobs, inProcesses(processes)),
		unit: "/s", floor: atLeast(1), chart: on,
		ours: "Handle, or HandleTx for the INSERT", peer: "River's best settings, jobs",
	}, 0, eventsSystem, riverSystem))
}

// throughputSitting measures how much of a task the systems get done in a second.
func throughputSitting(name, task string, processes int) *sitting {
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			n := b.itemsOf(system, task)
			if task == "none" && system != eventsSystem && system != nodeEventsSystem {
				n *= 3 // a round takes a second or more, so that its beginning and its end count for little
			}
			w, err := b.newWork(ctx, system, task, processes, max(n/2, 100))
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) {
				speed, err := w.throughput(ctx, n, w.best)
				return []float64{speed}, err
			}, nil
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
			work: fmt.Sprintf("%s, one process, beside %s", one.work, systemNames[one.peer]), target: one.target, unit: "/s",
			ours: one.ours + " of the client for Node", peer: systemNames[one.peer] + "'s best settings, jobs",
		}, 0, one.system, one.peer))
	}
	return all
}

// jobFraction keeps rounds short: every queue writes a job several times.
const jobFraction = 10

// itemsOf is the number of jobs or events in a round.
func (b *bench) itemsOf(system, task string) int {
	n := b.events / jobFraction
	if task != "none" && task != "note" {
		return max(n/4, 100)
	}
	if system == eventsSystem || system == keyedSystem || system == nodeEventsSystem {
		n = b.events
	}
	return max(n, 100)
}

// enqueueRows measure adding jobs, with no worker.
func enqueueRows() (all []row) {
	s := &sitting{
		name: "enqueue",
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			w, err := b.openWork(ctx, system, "none", 1)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) { return w.enqueueing(ctx, b.itemsOf(system, "none")) }, nil
		},
	}
	for i, way := range []string{"1,000 at once", "one by one"} {
		measured := fmt.Sprintf("Client.Enqueue, %d callers", []int{bulkCallers, singleCallers}[i])
		for _, peer := range []string{graphileSystem, riverSystem, pgbossSystem} {
			all = append(all, s.row(row{
				work: fmt.Sprintf("enqueue jobs %s, beside %s", way, systemNames[peer]), target: atLeast(1), unit: "/s",
				ours: measured, peer: enqueueWays[peer][i], chart: bars("enqueue", "jobs, "+way),
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
func (w *work) enqueueing(ctx context.Context, n int) (figures []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	before, err := w.count(ctx, w.left)
	if err != nil {
		return nil, err
	}
	added := 0
	for _, add := range []struct {
		n  int
		do func(ctx context.Context, n int) error
	}{{n, w.fillUp}, {max(n/4, 100), w.addSingly}} {
		start := time.Now()
		if err := add.do(ctx, add.n); err != nil {
			return nil, err
		}
		figures = append(figures, float64(add.n)/time.Since(start).Seconds())
		added += add.n
	}
	after, err := w.count(ctx, w.left)
	if err == nil && after-before != added {
		err = fmt.Errorf("%d jobs arrived instead of %d", after-before, added)
	}
	return figures, err
}
