package localpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processesIn lists the live Postgres processes of a cluster, which all have it as
// working directory. Other programs in that directory do not count.
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
		// os.Stat, unlike os.Readlink, also recognises a data directory that has
		// several paths. Zombies have no cwd.
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
