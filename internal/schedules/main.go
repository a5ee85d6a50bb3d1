// Command schedules searches the scenarios of internal/schedule for a schedule that breaks a
// promise.
//
//	go run ./internal/schedules -for 8h                 a night: all scenarios in turn, also with points inside functions
//	go run ./internal/schedules -scenario late -n 500   random schedules of one scenario
//	go run ./internal/schedules -scenario late -search all -preempt 2
//	go run ./internal/schedules -scenario late -replay "A W1 A W1"
//
// A schedule that broke a promise is printed as the statements of each session, which anybody
// can type into as many sessions of psql with a new database, and with the arguments that
// replay it. It must be run in the checkout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/scenarios"
)

// options are the flags.
type options struct {
	scenario string
	limit    schedule.Limit
	seed     uint64
	search   string
	preempt  int
	points   bool
	replay   string
	night    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "", "names of scenarios, with commas; without, all")
	flag.DurationVar(&o.night, "for", 0, "search all scenarios in turn for this long, in every way")
	flag.IntVar(&o.limit.Schedules, "n", 300, "schedules of each scenario at most")
	flag.DurationVar(&o.limit.Time, "time", time.Minute, "time of each scenario at most")
	flag.BoolVar(&o.limit.All, "go-on", false, "go on after a schedule that broke a promise")
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of random schedules")
	flag.StringVar(&o.search, "search", "random", "random; novel: random ones that begin like one with something new; all: depth first")
	flag.IntVar(&o.preempt, "preempt", 1, "with -search all: switches away from a session that could go on, at most")
	flag.BoolVar(&o.points, "points", false, "sessions stop inside functions, too")
	flag.StringVar(&o.replay, "replay", "", "one schedule: the sessions in the order in which they go on; prints it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		os.Exit(1)
	}
}

var errBroken = errors.New("a promise was broken")

func (o options) run(ctx context.Context) (err error) {
	chosen, err := choose(o.scenario)
	if err != nil {
		return err
	}
	server, err := schedule.StartServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	d := schedule.NewDriver(server)
	defer d.Close(ctx)
	if o.night > 0 {
		return night(ctx, d, chosen, o)
	}
	if err := use(ctx, d, o.points); err != nil {
		return err
	}
	if o.replay != "" {
		return replay(ctx, d, chosen, o.replay)
	}
	for _, sc := range chosen {
		result, failed := d.Explore(ctx, sc, o.searchOf(), o.limit)
		if failed != nil {
			return failed
		}
		fmt.Println(result)
		if result.Broken > 0 {
			err = errBroken
		}
	}
	return err
}

// use puts points into the functions, or not.
func use(ctx context.Context, d *schedule.Driver, points bool) error {
	functions, err := schedule.Checkout{Root: ".", Points: points}.Functions()
	if err != nil {
		return err
	}
	return d.Use(ctx, points, functions...)
}

func choose(names string) ([]*schedule.Scenario, error) {
	if names == "" {
		return scenarios.All(), nil
	}
	var chosen []*schedule.Scenario
	for name := range strings.SplitSeq(names, ",") {
		sc := scenarios.Named(name)
		if sc == nil {
			return nil, fmt.Errorf("there is no scenario %q", name)
		}
		chosen = append(chosen, sc)
	}
	return chosen, nil
}

func (o options) searchOf() schedule.Search {
	switch o.search {
	case "all":
		return schedule.Bounded(o.preempt)
	case "novel":
		return schedule.Novel(o.seed)
	default:
		return schedule.Random(o.seed)
	}
}

// replay runs one schedule in a new database, whose ids begin at 1, and prints it.
func replay(ctx context.Context, d *schedule.Driver, chosen []*schedule.Scenario, names string) error {
	if len(chosen) != 1 {
		return errors.New("-replay needs -scenario with one name")
	}
	r, err := d.Run(ctx, chosen[0], schedule.Replay(names))
	if err != nil {
		return err
	}
	fmt.Println(r.Report(chosen[0].Name))
	if len(r.Wrong) > 0 {
		return errBroken
	}
	return nil
}
