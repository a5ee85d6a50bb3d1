package torture

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/posthorntest"
)

var (
	only     = flag.String("torture.part", "", "log, jobs, pipeline, kafka, failover, lossy-failover, cancelled-waits or patroni; all of them by default")
	seed     = flag.Uint64("torture.seed", 0, "seed of the clients' decisions; 0 for a random one")
	duration = flag.Duration("torture.for", 0, "duration of the test of each part; by default until ten faults")
	kill     = flag.Duration("torture.kill", 2*time.Second, "the pause between two faults in a run with -torture.for")
)

// TestTorture runs each part under faults; its checker must find no violation. The
// seeds require:
//
//   - jobs: a job is handed to one worker at a time. Seed 004.32
//   - pipeline: every event arrives, in the order of its stream. Seed 003.2, 003.3,
//     003.7, 003.13, 003.15, 003.17
func TestTorture(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	parts := []struct {
		name    string
		unnamed bool // runs without -torture.part, too
		of      func(*run) part
	}{
		{"log", true, func(r *run) part { return &logPart{run: r} }},
		{"jobs", true, func(r *run) part { return &jobsPart{run: r} }},
		{"pipeline", true, func(r *run) part { return &pipelinePart{run: r} }},
		{"kafka", false, newKafkaPart},
		{"failover", testsize.All(), func(r *run) part { return &failoverPart{logPart: &logPart{run: r}} }},
		{"lossy-failover", false, lossyFailover},
		{"cancelled-waits", false, cancelledWaits},
		{"patroni", testsize.All(), func(r *run) part {
			return &patroniPart{failoverPart: &failoverPart{logPart: &logPart{run: r}}}
		}},
	}
	tortured := 0
	for _, p := range parts {
		if *only != "" && *only != p.name || *only == "" && !p.unnamed {
			continue
		}
		tortured++
		t.Run(p.name, func(t *testing.T) {
			t.Logf("-torture.part %s -torture.seed %d", p.name, *seed)
			r := newRun(t, *seed)
			r.torture(p.of(r))
		})
	}
	if tortured == 0 {
		t.Errorf("unknown part %q", *only)
	}
}

// setup makes the test binary a process that is killed. It is passed in an
// environment variable, as JSON.
type setup struct {
	Role                                          string
	Seed                                          uint64
	Database, Server, Redis, NATS, Kafka, Archive string // URLs
	Alone                                         bool   // the brokers are one server each
	Webhooks                                      bool   // the server sends to webhooks, too
}

const setupVariable = "POSTHORN_TORTURE"

var roles = map[string]func(context.Context, setup) error{
	"server": beServer, "workers": beWorkers,
	"relay": beRelay, "archiver": beArchiver, "redis reader": beReader, "nats reader": beReader, "kafka reader": beReader,
}

func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{}) // it would log every killed server
	var s setup
	if json.Unmarshal([]byte(os.Getenv(setupVariable)), &s) != nil {
		posthorntest.Main(m)
		return
	}
	go endWithParent()
	if err := roles[s.Role](context.Background(), s); err != nil {
		fmt.Println(s.Role+":", err) // the process is started again
		os.Exit(1)
	}
}

// endWithParent ends this process when its parent has ended, which closes the pipe.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}
