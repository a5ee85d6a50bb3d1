package testpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// Patroni is a primary with two standbys that Patroni runs, and that fail over by themselves: about
// ten seconds after the primary died. Commits wait for a standby. The test ends it.
type Patroni struct {
	Etcd    *Etcd
	Members []*Member

	dir       *testdir.Dir
	network   *network
	bin       string
	settings  map[string]string
	passwords map[string]string // by role
}

// Member is a server with its Patroni.
type Member struct {
	Name string

	cluster *Patroni
	number  int
	address string
	api     string // address
	patroni *exec.Cmd
	paused  []int // the processes that Pause has stopped
}

// PatroniTimes are the settings ttl, loop_wait and retry_timeout of Patroni, in seconds. Patroni asks for
// ttl >= loop_wait + 2 * retry_timeout.
var PatroniTimes = [3]int{10, 2, 3}

// StartPatroni starts a cluster with the given settings. The test is skipped where a program is
// missing.
func StartPatroni(t testing.TB, settings map[string]string) *Patroni {
	t.Helper()
	c := &Patroni{bin: patroniPrograms(t), settings: settings, passwords: map[string]string{"posthorn": rand.Text(), "replicator": rand.Text()}}
	c.dir = testdir.New(t, "patroni-")
	makeForOther(t, filepath.Join(c.dir.Path, "run"))
	c.network = newNetwork(t, c.dir, 3)
	ports := &ports{}
	c.Etcd = startEtcd(t, c.dir, c.network, ports)
	for i, name := range []string{"a", "b", "c"} {
		host := c.network.host(i)
		c.Members = append(c.Members, &Member{Name: name, cluster: c, number: i, address: ports.address(t, host), api: ports.address(t, host)})
	}
	for _, m := range c.Members {
		m.configure(t)
		t.Cleanup(m.Kill)
		m.Start(t)
	}
	leader, _ := c.AwaitWhole(t)
	conn := connectTo(t, leader.URL(), "postgres")
	defer conn.Close(context.Background())
	for _, statement := range []string{"create database posthorn", "alter role posthorn set search_path = public"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// patroniPrograms returns the directory of the programs of Postgres.
func patroniPrograms(t testing.TB) (bin string) {
	t.Helper()
	for _, name := range []string{"patroni", "etcd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("no " + name + " on this machine: scripts/deps patroni installs it")
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	if BinDir() != "" {
		found = []string{BinDir()}
	}
	for _, dir := range found {
		if _, err := os.Stat(filepath.Join(dir, "pg_rewind")); err == nil {
			bin = dir
		}
	}
	if bin == "" {
		t.Skip("no pg_rewind of the tested version of Postgres on this machine, which Patroni runs")
	}
	return bin
}

func (m *Member) configure(t testing.TB) {
	t.Helper()
	c := m.cluster
	var etcd []string
	for _, e := range c.Etcd.members {
		etcd = append(etcd, e.client)
	}
	config := map[string]any{
		"scope": "posthorn", "name": m.Name,
		"restapi": map[string]any{"listen": m.api, "connect_address": m.api},
		"etcd3":   map[string]any{"hosts": etcd},
		"bootstrap": map[string]any{
			"initdb": []any{map[string]any{"encoding": "UTF8"}, map[string]any{"locale": "C"}, "data-checksums"},
			"dcs": map[string]any{
				"ttl": PatroniTimes[0], "loop_wait": PatroniTimes[1], "retry_timeout": PatroniTimes[2],
				"synchronous_mode": true, "synchronous_mode_strict": true,
				"postgresql": map[string]any{
					"use_pg_rewind": true, "remove_data_directory_on_rewind_failure": true, "remove_data_directory_on_diverged_timelines": true,
					"parameters": c.settings,
				},
			},
		},
		"postgresql": map[string]any{
			"listen": m.address, "connect_address": m.address, "bin_dir": c.bin,
			"data_dir": m.file("pgdata"), "pgpass": m.file("pgpass"),
			"authentication": map[string]any{
				"superuser":   map[string]any{"username": "posthorn", "password": c.passwords["posthorn"]},
				"replication": map[string]any{"username": "replicator", "password": c.passwords["replicator"]},
			},
			"pg_hba":     []string{"host all all all scram-sha-256", "host replication all all scram-sha-256", "local all all scram-sha-256"},
			"parameters": map[string]any{"unix_socket_directories": m.file(""), "dynamic_shared_memory_type": "mmap", "jit": "off"},
		},
	}
	text, err := json.Marshal(config) // YAML, too
	if err == nil {
		makeForOther(t, m.file(""))
		err = os.WriteFile(m.file("patroni.yml"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *Member) file(name string) string {
	return filepath.Join(m.cluster.dir.Path, "run", m.Name, name)
}

// Start starts the Patroni of a member, which starts its server.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	m.patroni = m.cluster.network.command(t, m.number, "patroni", m.file("patroni.yml"))
	startAsOther(t, m.cluster.dir, m.patroni, m.Name)
}

// Kill ends the Patroni and the server with SIGKILL.
func (m *Member) Kill() {
	_ = m.patroni.Process.Kill() // fails if it has ended
	_ = m.patroni.Wait()
	for _, pid := range append(m.processes(), m.paused...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	m.paused = nil
}

// Pause stops the Patroni and all processes of the server. They keep their connections.
func (m *Member) Pause() {
	_ = m.patroni.Process.Signal(syscall.SIGSTOP) // fails if it has ended
	for _, pid := range m.processes() {
		if syscall.Kill(pid, syscall.SIGSTOP) == nil {
			m.paused = append(m.paused, pid)
		}
	}
}

// ResumeServer lets the server go on, without its Patroni.
func (m *Member) ResumeServer() {
	for _, pid := range m.paused {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
	}
	m.paused = nil
}

// ResumePatroni lets the Patroni go on.
func (m *Member) ResumePatroni() {
	_ = m.patroni.Process.Signal(syscall.SIGCONT) // fails if it has ended
}

// processes returns the processes of the server. The first one starts the others, and is stopped so that it
// starts no more.
func (m *Member) processes() []int {
	text, err := os.ReadFile(m.file("pgdata/postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	pid, numberErr := strconv.Atoi(first)
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || numberErr != nil || !strings.Contains(string(command), m.file("pgdata")) { // another program has this number now
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	pids := []int{pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// URL is the address of the member's server alone.
func (m *Member) URL() string { return m.cluster.url([]*Member{m}) + "&connect_timeout=5" }

// SocketURL is the address of the member's server for a program beside it, which a cut network does not matter to.
func (m *Member) SocketURL() string {
	host, port, _ := strings.Cut(m.address, ":")
	return strings.Replace(m.cluster.url([]*Member{m}), "@"+host+":"+port+"/", "@/", 1) + "&host=" + m.file("") + "&port=" + port
}

// CanBeCut reports whether the members have networks of their own.
func (c *Patroni) CanBeCut() bool { return c.network != nil }

// Cut cuts the member, its Patroni and its member of etcd from all others and from the test.
func (m *Member) Cut(t testing.TB) { m.cluster.network.set(t, m.number, "down") }

// Mend connects a member again after Cut.
func (m *Member) Mend(t testing.TB) { m.cluster.network.set(t, m.number, "up") }

// URLFrom is the URL with the addresses of all servers, beginning with a member's, of which clients choose the primary.
func (c *Patroni) URLFrom(first int) string {
	return c.url(slices.Concat(c.Members[first:], c.Members[:first])) + "&target_session_attrs=read-write"
}

func (c *Patroni) url(members []*Member) string {
	var hosts []string
	for _, m := range members {
		hosts = append(hosts, m.address)
	}
	return fmt.Sprintf("postgres://posthorn:%s@%s/posthorn?sslmode=disable", c.passwords["posthorn"], strings.Join(hosts, ","))
}

// patroniMember is a member as Patroni describes it.
type patroniMember struct {
	Name, Role, State string
	Timeline          int
}

// describe returns what Patroni knows of its members, as any of these says that answers.
func (c *Patroni) describe(ctx context.Context) (members []patroniMember) {
	client := http.Client{Timeout: 2 * time.Second}
	for _, m := range c.Members {
		request, _ := http.NewRequestWithContext(ctx, "GET", "http://"+m.api+"/cluster", nil) // the address is valid
		response, err := client.Do(request)
		if err != nil {
			continue // it is dead or hangs
		}
		var answer struct{ Members []patroniMember }
		err = json.NewDecoder(response.Body).Decode(&answer)
		_ = response.Body.Close()
		if err == nil && response.StatusCode == http.StatusOK {
			return answer.Members
		}
	}
	return nil
}

// AwaitWhole waits until a primary has its two standbys, and one of them is synchronous. It returns
// the primary and its timeline. A standby that has not received the log for half a minute is made anew,
// as an operator would: Patroni 3.0 may remove the data directory of a server that it has started twice, and then
// lets the new one recover by itself, which ends apart from the primary.
func (c *Patroni) AwaitWhole(t testing.TB) (leader *Member, timeline int) {
	t.Helper()
	var last []patroniMember
	defer func() {
		if t.Failed() {
			t.Logf("Patroni says %+v", last)
		}
	}()
	apart := map[string]time.Time{} // since when a member that runs does not receive the log
	await.True(t, "Patroni has a primary and two standbys", func() bool {
		last = c.describe(t.Context())
		leader, timeline = c.whole(last)
		if leader == nil {
			return false
		}
		receiving, synchronous := leader.standbys(t.Context())
		for _, m := range c.Members {
			if m == leader || slices.Contains(receiving, m.Name) {
				delete(apart, m.Name)
			} else if since, seen := apart[m.Name]; !seen {
				apart[m.Name] = time.Now()
			} else if time.Since(since) > 30*time.Second {
				m.reinitialize(t)
				delete(apart, m.Name)
			}
		}
		return len(receiving) == 2 && synchronous
	})
	return leader, timeline
}

// reinitialize asks Patroni to copy the primary to a standby again.
func (m *Member) reinitialize(t testing.TB) {
	t.Helper()
	response, err := http.Post("http://"+m.api+"/reinitialize", "application/json", strings.NewReader(`{"force": true}`))
	if err != nil {
		t.Logf("%s cannot be made anew: %v", m.Name, err)
		return
	}
	_ = response.Body.Close()
	t.Logf("%s does not follow the primary, and is made anew: %s", m.Name, response.Status)
}

func (c *Patroni) whole(members []patroniMember) (leader *Member, timeline int) {
	synchronous, timelines := 0, map[int]bool{}
	for _, m := range members {
		switch {
		case m.State != "running" && m.State != "streaming":
			return nil, 0
		case m.Role == "leader":
			leader, timeline = c.Member(m.Name), m.Timeline
		case m.Role == "sync_standby":
			synchronous++
		}
		timelines[m.Timeline] = true
	}
	if len(members) != len(c.Members) || synchronous != 1 || len(timelines) != 1 {
		return nil, 0
	}
	return leader, timeline
}

// standbys returns the names of the standbys that receive the log of a primary, and whether one of them is synchronous.
func (m *Member) standbys(ctx context.Context) (receiving []string, synchronous bool) {
	conn, err := pgx.Connect(ctx, strings.Replace(m.URL(), "/posthorn?", "/postgres?", 1))
	if err != nil {
		return nil, false
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(ctx, `
		select coalesce(array_agg(application_name) filter (where state = 'streaming'), '{}'), coalesce(bool_or(sync_state <> 'async'), false)
		from pg_stat_replication where not pg_is_in_recovery()`).Scan(&receiving, &synchronous)
	if err != nil {
		return nil, false
	}
	return receiving, synchronous
}

// Member returns the member with a name.
func (c *Patroni) Member(name string) *Member {
	for _, m := range c.Members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// AwaitOther waits until another member is the primary, and returns it.
func (c *Patroni) AwaitOther(t testing.TB, old *Member) (leader *Member) {
	t.Helper()
	await.True(t, "another member is the primary", func() bool {
		leader = c.leader(t.Context())
		return leader != nil && leader != old && leader.takesWrites(t.Context())
	})
	return leader
}

func (c *Patroni) leader(ctx context.Context) *Member {
	for _, m := range c.describe(ctx) {
		if m.Role == "leader" {
			return c.Member(m.Name)
		}
	}
	return nil
}

func (m *Member) takesWrites(ctx context.Context) bool {
	conn, err := pgx.Connect(ctx, m.URL()+"&target_session_attrs=read-write")
	if err != nil {
		return false
	}
	_ = conn.Close(ctx)
	return true
}

// Switchover asks Patroni to make another member the primary, until one is.
func (c *Patroni) Switchover(t testing.TB, old *Member) {
	t.Helper()
	await.True(t, "Patroni switches over", func() bool {
		body, _ := json.Marshal(map[string]string{"leader": old.Name}) // cannot fail for strings
		response, err := http.Post("http://"+old.api+"/switchover", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		now := c.leader(t.Context()) // Patroni may have been too slow to say that it has switched over
		return now != nil && now != old
	})
}

// ports are those of a cluster, each of them once.
type ports struct{ taken []int }

func (p *ports) free(t testing.TB) (port int) {
	t.Helper()
	for port = testdir.FreePort(t); slices.Contains(p.taken, port); {
		port = testdir.FreePort(t)
	}
	p.taken = append(p.taken, port)
	return port
}

func (p *ports) address(t testing.TB, host string) string {
	t.Helper()
	return host + ":" + strconv.Itoa(p.free(t))
}

// startAsOther starts a program of network.command. Its messages go to a file of the directory.
func startAsOther(t testing.TB, dir *testdir.Dir, cmd *exec.Cmd, name string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir.Path, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, entry := range os.Environ() { // Postgres obeys PG*, Patroni PATRONI_*, and etcd ETCD_*
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "PATRONI_") && !strings.HasPrefix(entry, "ETCD_") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "HOME="+dir.Path)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir.Path, log, log
	dir.Attach(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// makeForOther makes a directory that the user of such a program can write.
func makeForOther(t testing.TB, path string) {
	t.Helper()
	err := os.Mkdir(path, 0o700)
	if as := unprivileged(t); err == nil && as != nil {
		err = os.Chown(path, int(as.Credential.Uid), int(as.Credential.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
}
