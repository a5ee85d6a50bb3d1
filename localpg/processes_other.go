//go:build !linux

package localpg

import (
	"os/exec"
	"strconv"
	"strings"
)

// processesIn lists the postmaster of a cluster, if it lives, by its command
// line. Its children are not found; they end by themselves when it does.
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
