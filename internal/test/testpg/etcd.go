package testpg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// Etcd is a cluster of three members of etcd, in which Patroni keeps who is the primary. The
// test ends it.
type Etcd struct {
	members []*etcdMember
	dir     *testdir.Dir
	network *network
}

type etcdMember struct {
	number       int
	name         string
	client, peer string // addresses
	cmd          *exec.Cmd
}

// startEtcd starts three members whose files are in a directory that their user can write.
func startEtcd(t testing.TB, dir *testdir.Dir, network *network, ports *ports) *Etcd {
	t.Helper()
	e := &Etcd{dir: dir, network: network}
	for i := range 3 {
		host := network.host(i)
		e.members = append(e.members, &etcdMember{number: i, name: fmt.Sprintf("etcd%d", i), client: ports.address(t, host), peer: ports.address(t, host)})
	}
	for _, m := range e.members {
		e.start(t, m)
	}
	e.AwaitLeader(t)
	return e
}

func (e *Etcd) start(t testing.TB, m *etcdMember) {
	t.Helper()
	var cluster []string
	for _, other := range e.members {
		cluster = append(cluster, other.name+"=http://"+other.peer)
	}
	m.cmd = e.network.command(t, m.number, "etcd", "--name", m.name, "--data-dir", filepath.Join(e.dir.Path, "run", m.name),
		"--listen-client-urls", "http://"+m.client, "--advertise-client-urls", "http://"+m.client,
		"--listen-peer-urls", "http://"+m.peer, "--initial-advertise-peer-urls", "http://"+m.peer,
		"--initial-cluster", strings.Join(cluster, ","), "--log-level", "error")
	startAsOther(t, e.dir, m.cmd, m.name)
}

// AwaitLeader waits until a member leads, and returns it.
func (e *Etcd) AwaitLeader(t testing.TB) (leader *etcdMember) {
	t.Helper()
	await.True(t, "a member of etcd leads", func() bool {
		for _, m := range e.members {
			if m.leads() {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

func (m *etcdMember) leads() bool {
	client := http.Client{Timeout: time.Second}
	response, err := client.Post("http://"+m.client+"/v3/maintenance/status", "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		}
		Leader string
	}
	return json.NewDecoder(response.Body).Decode(&status) == nil && status.Leader != "" && status.Leader == status.Header.Member
}

// ReplaceLeader kills the leader, waits until another member leads, and starts the old one again.
func (e *Etcd) ReplaceLeader(t testing.TB) {
	t.Helper()
	leader := e.AwaitLeader(t)
	_ = leader.cmd.Process.Kill() // fails if it has ended
	_ = leader.cmd.Wait()
	e.AwaitLeader(t)
	e.start(t, leader)
}
