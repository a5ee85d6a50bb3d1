// Package testkafka runs Kafka nodes for tests, as processes of their own. The nodes are brokers and controllers (KRaft),
// have 256 MB each, store their files in a temporary directory, listen on free ports of the loopback interface, and end
// with the process of the test. A test can kill, pause and restart them.
//
// scripts/deps kafka downloads the programs. Tests are skipped where they or Java are missing.
package testkafka

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testprogram"
	"github.com/posthorn/posthorn/internal/test/testtls"
)

// Version is the version of Kafka.
const Version = "4.4.0"

// The user of the listener with TLS and SASL. OAUTHBEARER takes each unsigned token.
const User, Password = "alice", "open-sesame"

// Node is a node of Kafka. It can be stopped and started again.
type Node struct {
	Addr     string // of the listener without TLS
	Secure   string // of the listener with TLS and SASL
	RootsPEM string // the file with the certificate of Secure

	id         int
	name       string
	controller string // address of its listener for controllers
	dir        *testdir.Dir
	home       string // has the configuration, log and data of this node

	mu      sync.Mutex
	process *os.Process // nil while the node is down
	ended   <-chan struct{}
}

// shared is the node that all tests of this process share. It ends with the process.
var shared struct {
	sync.Mutex
	node *Node
}

// Shared returns the node that the tests of this process share. A test that kills or pauses it must not run beside others.
func Shared(t testing.TB) *Node {
	t.Helper()
	jars := programs(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.node == nil {
		dir, err := testdir.Make("testkafka-")
		if err != nil {
			t.Fatal(err)
		}
		shared.node = launch(t, dir, jars, 1)[0]
	}
	return shared.node
}

// Start starts a node that no other test uses. It ends with the process.
func Start(t testing.TB) *Node {
	t.Helper()
	jars := programs(t)
	dir, err := testdir.Make("testkafka-")
	if err != nil {
		t.Fatal(err)
	}
	n := launch(t, dir, jars, 1)[0]
	t.Cleanup(n.Kill)
	return n
}

// Need skips a test where Kafka or Java is not installed.
func Need(t testing.TB) {
	t.Helper()
	programs(t)
}

// NeedKills skips a test that kills a node, unless POSTHORN_TEST_KILLS is set, as make torture does: a node that
// was killed is accepted again only after 9 seconds, when its session has expired.
func NeedKills(t testing.TB) {
	t.Helper()
	if os.Getenv("POSTHORN_TEST_KILLS") == "" {
		t.Skip("make torture kills servers of Kafka")
	}
}

// programs is the class path of Kafka.
func programs(t testing.TB) string {
	t.Helper()
	root, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache", "kafka-"+Version)
	_, missing := os.Stat(dir)
	if _, err := exec.LookPath("java"); err != nil || missing != nil {
		t.Skip("Kafka or Java is not installed; scripts/deps kafka installs both")
	}
	return filepath.Join(dir, "*")
}

// launch starts nodes, which are one cluster, and returns when all of them answer.
func launch(t testing.TB, dir *testdir.Dir, jars string, size int) (nodes []*Node) {
	t.Helper()
	ports := testdir.FreePorts(t, 3*size)
	address := func() string {
		port := ports[0]
		ports = ports[1:]
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	var voters []string
	for id := 1; id <= size; id++ {
		n := &Node{Addr: address(), Secure: address(), controller: address(), id: id, name: fmt.Sprintf("node%d", id), dir: dir}
		n.home = filepath.Join(dir.Path, n.name)
		voters, nodes = append(voters, fmt.Sprintf("%d@%s", id, n.controller)), append(nodes, n)
	}
	for _, n := range nodes {
		n.configure(t, voters)
		n.format(t, jars)
	}
	for _, n := range nodes {
		n.start(t)
	}
	for _, n := range nodes {
		n.await(t)
	}
	return nodes
}

func (n *Node) format(t testing.TB, jars string) {
	t.Helper()
	format := java(jars, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", n.config(),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", User, Password),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", User, Password))
	out, err := format.CombinedOutput()
	if bytes.Contains(out, []byte("UnsupportedClassVersionError")) {
		t.Skip("Kafka needs Java 17 or newer, and the installed one is older")
	}
	if err != nil {
		t.Fatalf("format the storage of Kafka: %v\n%s", err, out)
	}
}

// java is a command with the options that let Kafka start soon and with little memory.
func java(jars, class string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.log.kafka.coordinator.transaction=info", "-cp", jars, class,
	}, args...)...)
}

func (n *Node) config() string { return filepath.Join(n.home, "server.properties") }

func (n *Node) configure(t testing.TB, voters []string) {
	t.Helper()
	if err := os.MkdirAll(n.home, 0o755); err != nil {
		t.Fatal(err)
	}
	cert, key, store := filepath.Join(n.home, "cert.pem"), filepath.Join(n.home, "key.pem"), filepath.Join(n.home, "store.pem")
	testtls.Write(t, 1, cert, key)
	n.RootsPEM = cert
	var both []byte
	for _, file := range []string{key, cert} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	if err := os.WriteFile(store, both, 0o600); err != nil {
		t.Fatal(err)
	}
	const modules = "org.apache.kafka.common.security"
	replicas := min(3, len(voters))
	lines := []string{
		"process.roles=broker,controller", fmt.Sprintf("node.id=%d", n.id),
		"controller.quorum.voters=" + strings.Join(voters, ","), "controller.listener.names=CONTROLLER",
		fmt.Sprintf("listeners=PLAINTEXT://%s,SASL_SSL://%s,CONTROLLER://%s", n.Addr, n.Secure, n.controller),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%s,SASL_SSL://%s", n.Addr, n.Secure),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name=PLAINTEXT",
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + store,
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		fmt.Sprintf("listener.name.sasl_ssl.plain.sasl.jaas.config=%s.plain.PlainLoginModule required user_%s=%q;", modules, User, Password),
		"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=" + modules + ".scram.ScramLoginModule required;",
		"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=" + modules + ".scram.ScramLoginModule required;",
		"listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=" + modules + `.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="node";`,
		"log.dirs=" + strings.Join(n.disks(), ","), "metadata.log.dir=" + filepath.Join(n.home, "metadata"),
		"replica.high.watermark.checkpoint.interval.ms=500", // by which a node notices that a disk is gone
		"num.network.threads=1", "num.io.threads=2", "background.threads=2", "log.cleaner.enable=false",
		"offsets.topic.num.partitions=1", fmt.Sprintf("offsets.topic.replication.factor=%d", replicas),
		"transaction.state.log.num.partitions=1", fmt.Sprintf("transaction.state.log.replication.factor=%d", replicas),
		fmt.Sprintf("transaction.state.log.min.isr=%d", (replicas+1)/2),
		"auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0",
	}
	if len(voters) > 1 { // another node takes over soon
		lines = append(lines, "broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500")
		lines = append(lines, "log.segment.delete.delay.ms=1000") // the files are in memory
	}
	if err := os.WriteFile(n.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Kill sends SIGKILL to a running node, and returns when the process has ended. Kafka loses nothing that it has
// acknowledged, since the kernel has it.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		_ = n.process.Kill() // fails if the process has ended already
		<-n.ended
		n.process = nil
	}
}

// Pause suspends the process of the node. Its connections stay open and hang.
func (n *Node) Pause() { n.signal(syscall.SIGSTOP) }

// Resume continues a node that was paused.
func (n *Node) Resume() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(signal syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		_ = n.process.Signal(signal) // fails if the process has ended already
	}
}

// Restart starts a node that is down, and waits until it answers.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.start(t)
	n.await(t)
}

func (n *Node) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	process := java(programs(t), "kafka.Kafka", n.config())
	process.Stdout, process.Stderr = log, log
	if n.ended, err = n.dir.Start(process); err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	n.process = process.Process
}

func (n *Node) await(t testing.TB) {
	t.Helper()
	client := n.Client(t)
	defer client.Close()
	await.True(t, n.name+" is ready", func() bool {
		select {
		case <-n.ended:
			t.Fatalf("%s ended:\n%s", n.name, n.LogTail())
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return client.Ping(ctx) == nil
	})
}

// Client returns a plain client, for checks that do not go through Posthorn. The test closes it.
func (n *Node) Client(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.Addr), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Java runs a program of one file in Java with the classes of Kafka's clients, and returns its output.
func (n *Node) Java(t testing.TB, file string, args ...string) string {
	t.Helper()
	program := exec.CommandContext(await.Context(t), "java", append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", programs(t), file,
	}, args...)...)
	var said bytes.Buffer
	program.Stderr = &said
	out, err := program.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", file, err, out, said.String())
	}
	return string(out)
}

// Trim removes all records of a topic with one partition but the last ones.
func (n *Node) Trim(t testing.TB, topic string, keep int) {
	t.Helper()
	client := n.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	var offsets []int64
	ctx := await.Context(t)
	for end := n.end(t, client, topic); len(offsets) == 0 || offsets[len(offsets)-1] < end-2; { // behind the last one is a mark
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { offsets = append(offsets, r.Offset) })
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rt.Partitions = []kmsg.DeleteRecordsRequestTopicPartition{{Offset: offsets[len(offsets)-keep]}}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("trim topic %s: %v %+v", topic, err, resp)
	}
}

// end returns the end of the first partition of a topic.
func (n *Node) end(t testing.TB, client *kgo.Client, topic string) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].Offset
}

// LogTail returns the end of the node's log, for a test that has failed.
func (n *Node) LogTail() string {
	log, _ := os.ReadFile(filepath.Join(n.home, "log"))
	lines := bytes.Split(log, []byte("\n"))
	// Kafka prints the stack of each error; the lines of Java's frames say nothing here.
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte("\tat ")) })
	return string(bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
}
