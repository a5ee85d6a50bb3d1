package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	databaseURL string
	binDir      string
	rows        *regexp.Regexp
	markdown    bool
	jsonFile    string
	write       string
	quick       bool
	events      int
	logEvents   int
	logGroups   int
	jobs        int
	rounds      int
	warm        int
	held        time.Duration
	sustain     time.Duration
	lease       time.Duration
}

func main() {
	if encoded := os.Getenv(workerVariable); encoded != "" {
		if err := runWorker(encoded, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := parse()
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() options {
	o := options{rows: regexp.MustCompile("")}
	flag.StringVar(&o.databaseURL, "database-url", "", "measure on this server; the role must be allowed to create databases (default: start one)")
	flag.StringVar(&o.binDir, "pg-bin", "", "start the server from the binaries in this `directory` (default: the newest that are found)")
	flag.Func("rows", "measure only rows whose name matches this `regexp`", func(s string) (err error) {
		o.rows, err = regexp.Compile(s)
		return err
	})
	flag.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown")
	flag.StringVar(&o.jsonFile, "json", "", "write the results to this `file` too")
	flag.StringVar(&o.write, "write", "", "write docs/performance.md, its charts and bench/results.json in this `checkout`")
	flag.BoolVar(&o.quick, "quick", false, "measure some rows, in less than five minutes")
	flag.IntVar(&o.events, "events", 400_000, "events per round and side")
	flag.IntVar(&o.logEvents, "log-events", 1_000_000, "events in the large log of the caught-up row")
	flag.IntVar(&o.logGroups, "log-groups", 1_000, "groups on the large log of the caught-up row")
	flag.IntVar(&o.jobs, "jobs", 1_000_000, "jobs waiting in the rows of single claims; a fifth of them is claimed under the open transaction")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each row")
	flag.IntVar(&o.warm, "warm", 1, "rounds before them that only warm the server and are not counted")
	flag.DurationVar(&o.held, "held", time.Minute, "how long a transaction is held open, under traffic")
	flag.DurationVar(&o.sustain, "sustain", time.Minute, "how long the rows at a fixed rate take, for each system")
	flag.DurationVar(&o.lease, "lease", 5*time.Second, "lease of worker processes in the rows of kills")
	flag.Parse()
	if o.quick {
		o.hurry()
	}
	if flag.NArg() > 0 || o.events < 1000 || o.logEvents < 1 || o.logGroups < 1 || o.jobs < 5000 || o.rounds < 1 || o.warm < 0 || o.sustain <= 0 || o.lease < time.Second {
		flag.Usage()
		os.Exit(2)
	}
	return o
}

// quickRows are some rows of each kind.
const quickRows = `^(publish, batches of 1,000, beside|take \+ settle, windows of 1,000, two|jobs that do nothing, one process|` +
	`enqueue jobs|job latency at 100/s|event latency at 100/s, p[0-9]|WAL of|fan-out: one group|HTTP: claim|transactional handlers)`

// hurry sets the values of flags that are not given to smaller ones.
func (o *options) hurry() {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, set := range map[string]func(){
		"rows":   func() { o.rows = regexp.MustCompile(quickRows) },
		"rounds": func() { o.rounds = 3 },
		"events": func() { o.events = 50_000 },
	} {
		if !given[name] {
			set()
		}
	}
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	s, err := openServer(ctx, o, serverSettings, stderr)
	if err != nil {
		return err
	}
	defer s.close()
	report, err := measureAll(ctx, s, o, stderr)
	if err != nil {
		return err
	}
	return caught(func() {
		if o.jsonFile != "" {
			report.writeJSON(o.jsonFile)
		}
		if o.write != "" {
			report.write(o.write, o)
		}
		if o.markdown {
			report.markdown(stdout)
		} else {
			report.text(stdout)
		}
	})
}
