package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// idleRows measure what worker processes cost Postgres while there is nothing to do, each system with its own defaults, for a
// minute that begins when there has been nothing for a minute.
func idleRows() (all []row) {
	for _, processes := range []int{1, 10} {
		s := &sitting{
			name: fmt.Sprintf("idle %d", processes), once: true,
			open: func(ctx context.Context, b *bench, system string) (measure, error) {
				w, err := b.openWork(ctx, system, "none", processes)
				if err != nil {
					return nil, err
				}
				w.stopUpkeep() // the processes do it
				return func(ctx context.Context) ([]float64, error) { return w.idle(ctx, b.sustain+b.sustain/10, b.sustain) }, nil
			},
		}
		for i, figure := range []struct{ name, unit string }{{"processor time of Postgres in a minute", " ms"}, {"transactions a second", ""}} {
			for _, peer := range []string{graphileSystem, riverSystem, pgbossSystem} {
				all = append(all, s.row(row{
					work: fmt.Sprintf("idle workers of jobs, %s, %s, beside %s", inProcesses(processes), figure.name, systemNames[peer]), unit: figure.unit,
					ours: "Client.Work, its defaults", peer: systemNames[peer] + "'s defaults",
				}, i, jobsSystem, peer))
			}
			all = append(all, s.row(row{
				work: fmt.Sprintf("idle groups, %s, %s", inProcesses(processes), figure.name), unit: figure.unit, ours: "Handle, its defaults",
			}, i, eventsSystem))
		}
	}
	return all
}

// idle lets the worker processes wait, and returns the milliseconds of processor time of their connections' sessions in a
// minute, and the transactions in a second.
func (w *work) idle(ctx context.Context, before, during time.Duration) ([]float64, error) {
	if err := w.start(ctx, setting{Concurrency: 10, Batch: -1, Delay: -1, Idle: true}); err != nil {
		return nil, err
	}
	time.Sleep(before)
	began, ran, transactions, err := w.spent(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(during)
	ended, runs, more, err := w.spent(ctx)
	if err != nil {
		return nil, err
	}
	var spent time.Duration
	for pid, total := range runs {
		spent += total - ran[pid]
	}
	took := ended.Sub(began)
	return []float64{
		max(spent.Seconds()*1000*60/took.Seconds(), 0.01), // 0 has no ratio
		max(float64(more-transactions)/took.Seconds(), 0.01),
	}, w.fleet.stop(ctx)
}

// spent returns the processor time of each session of the worker processes, and the transactions of the database.
func (w *work) spent(ctx context.Context) (at time.Time, sessions map[int]time.Duration, transactions int, err error) {
	var pids []int
	err = w.QueryRow(ctx, `
		select array(select a.pid from pg_stat_activity a
			where a.datid = d.datid and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()), d.xact_commit + d.xact_rollback
		from pg_stat_database d where d.datname = current_database()`).Scan(&pids, &transactions)
	sessions = map[int]time.Duration{}
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if os.IsNotExist(err) {
			return at, nil, 0, skip("the server runs on another machine, or this system has no /proc")
		}
		ran, _, _ := strings.Cut(string(content), " ")
		nanoseconds, _ := strconv.ParseInt(ran, 10, 64)
		sessions[pid] = time.Duration(nanoseconds)
	}
	return time.Now(), sessions, transactions, err
}
