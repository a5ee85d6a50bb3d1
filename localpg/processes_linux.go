package localpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processesIn lists the live Postgres processes that work in a cluster: all of
// them change into it. A shell that happens to be there is not one of them.
func processesIn(cluster string) []int {
	want, err := os.Stat(cluster)
	if err != nil {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the only error is a bad pattern
	var pids []int
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "postgres" {
			continue
		}
		// Following the link, rather than reading it, also recognises a data
		// directory that is reached by another path. Zombies have no cwd.
		cwd, err := os.Stat(filepath.Join(dir, "cwd"))
		if err != nil || !os.SameFile(cwd, want) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
