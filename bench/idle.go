package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// idleRows measure what worker processes cost Postgres while there is nothing to do, each
// system with its own defaults, for a minute that begins when there has been nothing for
// a minute.
func idleRows() (all []row) {
	for _, processes := range []int{1, 10} {
		s := &sitting{
			name: fmt.Sprintf("idle %d", processes), once: true,
			open: func(ctx context.Context, b *bench, system string) measure {
				w := b.openWork(ctx, system, "none", processes)
				w.stopUpkeep() // the processes do it
				return func(ctx context.Context) []float64 { return w.idle(ctx, b.sustain+b.sustain/10, b.sustain) }
			},
		}
		for i, figure := range []struct{ name, unit string }{{"processor time of Postgres in a minute", " ms"}, {"transactions a second", ""}} {
			for _, peer := range jobPeers {
				all = append(all, s.row(row{
					work: fmt.Sprintf("idle workers of jobs, %s, %s, beside %s", inProcesses(processes), figure.name, labelOf(peer)), unit: figure.unit,
					ours: "Client.Work, its defaults", peer: labelOf(peer) + "'s defaults",
				}, i, jobsSystem, peer))
			}
			all = append(all, s.row(row{
				work: fmt.Sprintf("idle groups, %s, %s", inProcesses(processes), figure.name), unit: figure.unit, ours: "Handle, its defaults",
			}, i, eventsSystem))
		}
	}
	return all
}

// idle lets the worker processes wait, and returns the milliseconds of processor time of
// their connections' sessions in a minute, and the transactions in a second.
func (w *work) idle(ctx context.Context, before, during time.Duration) []float64 {
	w.start(ctx, setting{Concurrency: 10, Batch: -1, Delay: -1, Idle: true})
	sleep(ctx, before)
	first := w.spent(ctx)
	sleep(ctx, during)
	last := w.spent(ctx)
	var spent time.Duration
	for pid, total := range last.sessions {
		spent += total - first.sessions[pid]
	}
	took := last.at.Sub(first.at).Seconds()
	w.stop(ctx)
	return []float64{
		max(spent.Seconds()*1000*60/took, 0.01), // 0 has no ratio
		max(float64(last.transactions-first.transactions)/took, 0.01),
	}
}

// expense is what worker processes have cost Postgres up to a time.
type expense struct {
	at           time.Time
	sessions     map[int]time.Duration // the processor time of each, by its process
	transactions int
}

func (w *work) spent(ctx context.Context) expense {
	var pids []int
	e := expense{sessions: map[int]time.Duration{}}
	check(w.QueryRow(ctx, `
		select array(select a.pid from pg_stat_activity a
			where a.datid = d.datid and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()), d.xact_commit + d.xact_rollback
		from pg_stat_database d where d.datname = current_database()`).Scan(&pids, &e.transactions))
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if os.IsNotExist(err) {
			check(skip("the server runs on another machine, or this system has no /proc"))
		}
		ran, _, _ := strings.Cut(string(content), " ")
		nanoseconds, _ := strconv.ParseInt(ran, 10, 64)
		e.sessions[pid] = time.Duration(nanoseconds)
	}
	e.at = time.Now()
	return e
}
