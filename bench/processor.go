package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc: Linux shows all programs a hundredth of a second.
const clockTick = 10 * time.Millisecond

// processStat is a part of /proc/PID/stat.
type processStat struct {
	parent        int
	own, children time.Duration // processor time: of the process, and of its children that have ended
}

func statOf(pid string) (processStat, bool) {
	content, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return processStat{}, false
	}
	_, rest, _ := strings.Cut(string(content), ") ") // the name of the program may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return processStat{}, false
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(fields[i])
		return n
	}
	return processStat{
		parent:   number(1),
		own:      time.Duration(number(11)+number(12)) * clockTick,
		children: time.Duration(number(13)+number(14)) * clockTick,
	}, true
}

// familyTime is the processor time of a process and of its children, those that have ended too.
func familyTime(parent int) time.Duration {
	stat, _ := statOf(strconv.Itoa(parent))
	total := stat.own + stat.children
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if child, ok := statOf(filepath.Base(dir)); ok && child.parent == parent {
			total += child.own
		}
	}
	return total
}

// postmaster returns the id of the first process of the server, which must run on this machine.
func (s *server) postmaster(ctx context.Context) int {
	var pid int
	var directory string
	check(s.admin.QueryRow(ctx, "select pid, current_setting('data_directory') from pg_stat_activity where backend_type = 'checkpointer'").Scan(&pid, &directory))
	stat, ok := statOf(strconv.Itoa(pid))
	if !ok || s.local == nil && !runsHere(stat.parent, directory) {
		check(skip("the server runs on another machine, or this system has no /proc"))
	}
	return stat.parent
}

// runsHere reports whether a process works in the data directory of the server.
func runsHere(pid int, dataDirectory string) bool {
	in, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && in == dataDirectory
}

// processorTime is the processor time of the worker processes.
func (f *fleet) processorTime() (total time.Duration) {
	for _, p := range f.processes {
		stat, _ := statOf(strconv.Itoa(p.cmd.Process.Pid))
		total += stat.own
	}
	return total
}

// perItem returns the microseconds of each of n items.
func perItem(total time.Duration, n int) float64 {
	return float64(total.Microseconds()) / float64(n)
}
