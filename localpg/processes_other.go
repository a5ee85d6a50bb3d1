//go:build !linux

package localpg

import (
	"os/exec"
	"strconv"
	"strings"
)

// processesIn returns the live postmaster of a cluster, found by its command line.
// Its children are not listed; they end after the postmaster.
func processesIn(cluster string) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(command, "postgres") || !strings.Contains(command, " -D "+cluster+" ") {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
