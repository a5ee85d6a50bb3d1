package testpg

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// network gives each member of a cluster a network namespace, so that it can be cut from the others and from the test.
// A hub connects them. The namespaces end with the processes in them. A nil network is loopback, where nothing can be
// cut.
type network struct {
	hub     int   // a process in the namespace of the hub
	members []int // and in that of each member
	prefix  string
}

// newNetwork returns nil where there are no namespaces, or the test may make none.
func newNetwork(t testing.TB, dir *testdir.Dir, members int) *network {
	t.Helper()
	if os.Geteuid() != 0 || exec.Command("unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other").Run() != nil {
		return nil
	}
	n := &network{hub: namespace(t, dir), prefix: fmt.Sprintf("198.18.%d.", rand.IntN(256))} // of RFC 2544, for tests of networks
	n.in(t, n.hub, "ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward")
	outside := fmt.Sprintf("ph%d", n.hub)
	n.link(t, "outside", outside, os.Getpid(), 252)
	n.run(t, "sh", "-c", fmt.Sprintf("ip addr add %s254/30 dev %s && ip link set %s up && ip route add %s0/24 via %s253", n.prefix, outside, outside, n.prefix, n.prefix))
	for i := range members {
		pid := namespace(t, dir)
		n.members = append(n.members, pid)
		n.link(t, fmt.Sprint("m", i), "eth0", pid, 4*i)
		n.in(t, pid, fmt.Sprintf("ip link set lo up && ip addr add %s/30 dev eth0 && ip link set eth0 up && ip route add default via %s%d", n.host(i), n.prefix, 4*i+1))
	}
	return n
}

// link connects the hub with the namespace of a process, by a network of four addresses.
func (n *network) link(t testing.TB, name, peer string, pid, first int) {
	t.Helper()
	n.in(t, n.hub, fmt.Sprintf("ip link add %s type veth peer name %s netns %d && ip addr add %s%d/30 dev %s && ip link set %s up",
		name, peer, pid, n.prefix, first+1, name, name))
}

// namespace starts a process in a new namespace, and returns its number.
func namespace(t testing.TB, dir *testdir.Dir) (pid int) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "infinity")
	if _, err := dir.Start(cmd); err != nil {
		t.Fatal(err)
	}
	pid = cmd.Process.Pid
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the process has a namespace of its own", func() bool {
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return err == nil && its != own
	})
	return pid
}

// host is the address of a member.
func (n *network) host(i int) string {
	if n == nil {
		return "127.0.0.1"
	}
	return fmt.Sprint(n.prefix, 4*i+2)
}

// command prepares a program that runs in the network of a member, as a user that is not root.
func (n *network) command(t testing.TB, i int, program string, args ...string) *exec.Cmd {
	t.Helper()
	as := unprivileged(t)
	if n == nil {
		cmd := exec.Command(program, args...)
		cmd.SysProcAttr = as
		return cmd
	}
	return exec.Command("nsenter", append([]string{ // it becomes the program
		fmt.Sprintf("--net=/proc/%d/ns/net", n.members[i]), "setpriv",
		fmt.Sprintf("--reuid=%d", as.Credential.Uid), fmt.Sprintf("--regid=%d", as.Credential.Gid), "--clear-groups", program,
	}, args...)...)
}

// set sets the link of a member up or down.
func (n *network) set(t testing.TB, i int, to string) {
	t.Helper()
	n.in(t, n.hub, fmt.Sprintf("ip link set m%d %s", i, to))
}

// in runs a script in a namespace.
func (n *network) in(t testing.TB, pid int, script string) {
	t.Helper()
	n.run(t, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "sh", "-c", script)
}

func (n *network) run(t testing.TB, program string, args ...string) {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, said)
	}
}
