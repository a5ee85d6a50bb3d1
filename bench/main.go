package main

import (
	"context"
	"encoding/json"
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
	events      int
	logEvents   int
	logGroups   int
	jobs        int
	rounds      int
	held        time.Duration
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
	flag.IntVar(&o.events, "events", 400_000, "events per round and side")
	flag.IntVar(&o.logEvents, "log-events", 1_000_000, "events in the large log of the caught-up row")
	flag.IntVar(&o.logGroups, "log-groups", 1_000, "groups on the large log of the caught-up row")
	flag.IntVar(&o.jobs, "jobs", 1_000_000, "jobs waiting in the rows of single claims; a fifth of them is claimed under the open transaction")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each row")
	flag.DurationVar(&o.held, "held", time.Minute, "how long a transaction is held open, under traffic")
	flag.Parse()
	if flag.NArg() > 0 || o.events < 1000 || o.logEvents < 1 || o.logGroups < 1 || o.jobs < 5000 || o.rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	return o
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	s, err := openServer(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer s.close()
	report, err := measureAll(ctx, s, o, stderr)
	if err != nil {
		return err
	}
	if o.jsonFile != "" {
		if err := writeJSON(o.jsonFile, report); err != nil {
			return err
		}
	}
	if o.markdown {
		return report.markdown(stdout)
	}
	return report.text(stdout)
}

func writeJSON(file string, report *report) error {
	document, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(document, '\n'), 0o644)
}
