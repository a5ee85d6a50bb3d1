package testkafka

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// disks are the directories with the partitions, between which a node divides new ones.
func (n *Node) disks() []string {
	return []string{filepath.Join(n.home, "disk1"), filepath.Join(n.home, "disk2")}
}

// LoseDisk takes a disk away: not the one with the transactions. Soon its partitions have no leader.
func (n *Node) LoseDisk(t testing.TB) {
	t.Helper()
	for _, disk := range n.disks() {
		if _, err := os.Stat(filepath.Join(disk, "__transaction_state-0")); err == nil {
			continue
		}
		if err := os.Rename(disk, disk+".lost"); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// Stop ends the node, which has the time to say so to itself as the controller: it is accepted again at once.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		_ = n.process.Signal(syscall.SIGTERM) // fails if the process has ended already
		<-n.ended
		n.process = nil
	}
}

// Forget removes the records of a partition from an offset on, as a crash of the machine may do. The node is down. What
// Kafka derives from the records goes with them: it is made again.
func (n *Node) Forget(t testing.TB, partition string, from int64) {
	t.Helper()
	for _, disk := range n.disks() {
		files, err := filepath.Glob(filepath.Join(disk, partition, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			switch {
			case strings.HasSuffix(file, ".log"):
				forget(t, file, from)
			case strings.HasSuffix(file, "index"), strings.HasSuffix(file, ".snapshot"):
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// forget cuts the batches with an offset or later ones from a file of batches.
func forget(t testing.TB, file string, from int64) {
	t.Helper()
	batches, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := 0
	for end < len(batches) && int64(binary.BigEndian.Uint64(batches[end:])) < from {
		end += 12 + int(binary.BigEndian.Uint32(batches[end+8:]))
	}
	if end >= len(batches) {
		t.Fatalf("%s has no record from offset %d on", file, from)
	}
	if err := os.Truncate(file, int64(end)); err != nil {
		t.Fatal(err)
	}
}
