package torture

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

// part is a part of Posthorn to test. The run provides the seed, the loop of the
// publishers, the faults' order, the waiting and the report.
type part interface {
	// load returns the size of the load.
	load() load
	// start starts the servers and the workers.
	start()
	// publisher returns a function that publishes a transaction or a job at each
	// call.
	publisher() func(context.Context)
	// faults are injected in turn, round after round.
	faults() []fault
	// left describes the unfinished work.
	left() ([]string, error)
	// check compares the record with the database and all other places, after the
	// clients have ended.
	check() (counts string, found *findings)
}

type load struct {
	publishers int
	pace       time.Duration // longest pause of a publisher between two calls
	short      int           // number of acknowledged events or jobs before each fault of a short run
	step       int           // number of finished events or jobs between two faults, at least
	kills      int           // number of faults in a short run; by default minKills
}

// minKills is the number of faults in a short run of make test-all, and the minimum in a
// long one. In make test there are fewer, but each fault of the part happens once.
const minKills = 10

func leastKills(p part) int {
	if *duration > 0 {
		return minKills
	}
	kills := cmp.Or(p.load().kills, minKills)
	return testsize.Of(min(len(faultsOf(p)), kills), kills)
}

// faultsOf returns the faults of a part. In make test each is there once.
func faultsOf(p part) []fault {
	faults := p.faults()
	if *duration > 0 || testsize.All() {
		return faults
	}
	known := map[string]bool{}
	return slices.DeleteFunc(faults, func(f fault) bool {
		again := known[f.name]
		known[f.name] = true
		return again
	})
}

// run is the state that the parts and their clients share.
type run struct {
	t           *testing.T
	seed        uint64
	record      *record
	database    *database
	began       time.Time
	limit       atomic.Int64   // of acknowledged events or jobs before the next fault of a short run
	kills       atomic.Int64   // so far
	unconfirmed atomic.Int64   // publications whose wait for a standby was cancelled
	least       int            // number of faults, at least
	injected    map[string]int // injected faults by name; used by the test's goroutine only

	ctx        context.Context // ends with the clients, or when the run fails
	cancel     context.CancelFunc
	publishing context.Context // ends when enough was published
	enough     context.CancelFunc
	draining   atomic.Bool // workers behave well, so that all work gets done

	randoms    atomic.Int64
	publishers sync.WaitGroup
	clients    sync.WaitGroup
}

func newRun(t *testing.T, seed uint64) *run {
	r := &run{t: t, seed: seed, record: newRecord(), injected: map[string]int{}}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	r.publishing, r.enough = context.WithCancel(r.ctx)
	t.Cleanup(r.end)
	return r
}

// torture runs a part under faults, waits until it has finished its work, and checks
// the result.
func (r *run) torture(p part) {
	if own, ok := p.(interface{ startDatabase() *database }); ok {
		r.database = own.startDatabase()
	} else {
		r.database = startDatabase(r)
	}
	r.least = leastKills(p)
	r.began = time.Now()
	p.start()
	defer r.report(p) // also after a failed wait
	for range p.load().publishers {
		publish, rng := p.publisher(), r.random()
		r.publishers.Go(func() {
			for pause(r.publishing, upTo(rng, p.load().pace)) {
				if r.wanted() {
					publish(r.ctx)
				}
			}
		})
	}
	r.disturb(p)
	r.enough()
	r.publishers.Wait()
	r.draining.Store(true)
	r.drain(p)
}

// disturb injects faults, one after the other. Between two faults the part must make
// progress, which shows that it has recovered.
func (r *run) disturb(p part) {
	faults := faultsOf(p)
	for i := 0; r.elapsed() < 1; i++ {
		goal := r.record.done.Load() + int64(p.load().step)
		r.limit.Store(r.record.acked.Load() + int64(p.load().short))
		if *duration > 0 {
			pause(r.ctx, *kill)
		}
		r.await("work is done after a fault", func() bool { return r.record.done.Load() >= goal })
		f := faults[i%len(faults)]
		r.t.Logf("%s: fault: %s", time.Now().UTC(), f.name)
		f.inject(i / len(faults))
		r.injected[f.name]++
		r.kills.Add(1)
	}
}

// wanted reports whether more is to be published before the next fault.
func (r *run) wanted() bool {
	return *duration > 0 || r.record.acked.Load() < r.limit.Load()
}

// elapsed is the fraction of the run that is over.
func (r *run) elapsed() float64 {
	kills := float64(r.kills.Load()) / float64(r.least)
	if *duration > 0 {
		return min(kills, float64(time.Since(r.began))/float64(*duration))
	}
	return kills
}

// drain waits until no work is left. It fails if the remaining work does not change.
func (r *run) drain(p part) {
	for last := []string{"all"}; len(last) > 0; {
		r.await("the remaining work changes: "+strings.Join(last, "; "), func() bool {
			pause(r.ctx, 250*time.Millisecond) // left is expensive for the database
			left, err := p.left()
			if err != nil || slices.Equal(left, last) {
				return false // a server may be starting
			}
			last = left
			return true
		})
	}
}

// await waits for a condition, or until the run has failed.
func (r *run) await(condition string, holds func() bool) {
	r.t.Helper()
	await.True(r.t, condition, func() bool { return r.ctx.Err() != nil || holds() })
	if r.ctx.Err() != nil {
		r.t.FailNow()
	}
}

// end waits until all clients have ended.
func (r *run) end() {
	r.cancel()
	r.publishers.Wait()
	r.clients.Wait()
}

// fail ends the run after an unexpected error.
func (r *run) fail(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.t.Error(err)
		r.cancel()
	}
}

// random is a client's source of random numbers.
func (r *run) random() *rand.Rand { return random(r.seed, r.randoms.Add(1)) }

func random(seed uint64, client int64) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(client))) }

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// pause waits, and returns false when ctx has ended. Clients use it to be slow or
// late, and faults to last and to keep their distance in a long run. No check depends
// on its duration.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}
