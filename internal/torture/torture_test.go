package torture

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/posthorn/posthorn/posthorntest"
)

var (
	only     = flag.String("torture.part", "", "log, jobs or pipeline; all of them by default")
	seed     = flag.Uint64("torture.seed", 0, "the clients' decisions follow from this; 0 for a new one")
	duration = flag.Duration("torture.for", 0, "how long to torture each part; by default until ten faults have struck")
	kill     = flag.Duration("torture.kill", 3*time.Second, "the pause between two faults in a run with -torture.for")
)

// Every part is tortured, and its checker finds nothing. The seeds ask for:
//
//   - jobs: a job is handed to one worker at a time. Seed 004.32
//   - pipeline: every event comes through, in the order of its stream. Seed 003.2, 003.3,
//     003.7, 003.13, 003.15, 003.17
func TestTorture(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	parts := map[string]func(*run) part{
		"log":      func(r *run) part { return &logPart{run: r} },
		"jobs":     func(r *run) part { return &jobsPart{run: r} },
		"pipeline": func(r *run) part { return &pipelinePart{run: r} },
	}
	if *only != "" && parts[*only] == nil {
		t.Fatalf("there is no part %q", *only)
	}
	for name, newPart := range parts {
		if *only != "" && *only != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Logf("-torture.part %s -torture.seed %d", name, *seed)
			r := newRun(t, *seed)
			r.torture(newPart(r))
		})
	}
}

// Environment of the processes that are killed. A role makes the test binary one
// of them.
const (
	roleVariable     = "POSTHORN_TORTURE_ROLE"
	seedVariable     = "POSTHORN_TORTURE_SEED"
	databaseVariable = "POSTHORN_TORTURE_DATABASE"
	serverVariable   = "POSTHORN_TORTURE_SERVER"
	redisVariable    = "POSTHORN_TORTURE_REDIS"
	natsVariable     = "POSTHORN_TORTURE_NATS"
	archiveVariable  = "POSTHORN_TORTURE_ARCHIVE"
)

var roles = map[string]func(context.Context) error{
	"server":       beServer,
	"workers":      beWorkers,
	"relay":        beRelay,
	"archiver":     beArchiver,
	"redis reader": func(ctx context.Context) error { return beReader(ctx, "redis reader", os.Getenv(redisVariable)) },
	"nats reader":  func(ctx context.Context) error { return beReader(ctx, "nats reader", os.Getenv(natsVariable)) },
}

func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{}) // it would report every server that is killed
	be := roles[os.Getenv(roleVariable)]
	if be == nil {
		posthorntest.Main(m)
		return
	}
	go endWithParent()
	if err := be(context.Background()); err != nil {
		fmt.Println(os.Getenv(roleVariable)+":", err) // it is started again
		os.Exit(1)
	}
}

// endWithParent ends this process when its parent has gone: then the pipe closes.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// processRandom is the source of random numbers of the nth client in a process.
func processRandom(n int64) *rand.Rand {
	seed, _ := strconv.ParseUint(os.Getenv(seedVariable), 10, 64) // ours
	return random(seed, n)
}
