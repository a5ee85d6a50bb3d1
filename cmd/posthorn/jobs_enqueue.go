package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
)

const jobsEnqueueLong = `Enqueue one job and print its id, or with --lines many.

PAYLOAD is JSON, {} if it is left out; - reads it from the standard input.
Under a --unique-key that is in use, the id is that of the job which has it.

With --lines each line of the standard input is a job, a JSON object with the
fields title, payload, tags, description, priority, run_at, max_retries,
unique_key, unique_for, retry_delays and metadata; only title is required, and
periods are like 90s or 1h30m. Jobs are enqueued in order, up to 1,000 in one
transaction. At the first line that is wrong it stops; all lines before it are
enqueued, and it says how many that are. Interrupted, it
finishes the transaction under way first. If the connection breaks in a
transaction, it says of which lines it does not know whether they are written.`

const jobsEnqueueExample = `  posthorn jobs enqueue 'send welcome mail' '{"user": 7}' --tag mail
  posthorn jobs enqueue report --tag reports --run-at 2h --unique-key report-7
  posthorn jobs enqueue --lines < jobs.jsonl`

type jobFlags struct {
	job         pg.NewJob
	runAt       string
	metadata    string
	maxRetries  int
	retryDelays []time.Duration
}

func newJobsEnqueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "enqueue TITLE [PAYLOAD] | enqueue --lines",
		Short:   "Enqueue jobs",
		Long:    jobsEnqueueLong,
		Example: jobsEnqueueExample,
	}
	var f jobFlags
	flags := cmd.Flags()
	flags.StringArrayVar(&f.job.Tags, "tag", nil, "a tag, by which workers find it; may be repeated")
	flags.StringVar(&f.job.Description, "description", "", "more about it, for people")
	numberVar(flags, &f.job.Priority, "priority", 0, -mostInSQL, mostInSQL, "higher goes first")
	flags.StringVar(&f.runAt, "run-at", "", "not before: a time, or a duration from now")
	numberVar(flags, &f.maxRetries, "max-retries", 3, 0, 1_000_000, "how many attempts may fail")
	flags.DurationSliceVar(&f.retryDelays, "retry-delay", nil, "before a further attempt (default 5m); repeated: one after the other")
	flags.StringVar(&f.job.UniqueKey, "unique-key", "", "enqueued again under this key, it stays one job")
	flags.DurationVar(&f.job.UniqueFor, "unique-for", 0, "for how long (default: while it is pending)")
	flags.StringVar(&f.metadata, "metadata", "", "JSON that goes along with the payload")
	asJSON := jsonFlag(cmd)
	oneOrLines(cmd, "read jobs from the standard input, one a line",
		[]string{"tag", "description", "priority", "run-at", "max-retries", "retry-delay", "unique-key", "unique-for", "metadata"},
		func(args []string) error { return a.enqueueOne(cmd, args, f, *asJSON) },
		func() error { return a.enqueueLines(cmd, *asJSON) })
	return cmd
}

func (a *app) enqueueOne(cmd *cobra.Command, args []string, f jobFlags, asJSON bool) error {
	j, err := f.read(input{cmd.Context(), cmd.InOrStdin()}, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		var err error
		if j.RunAt, err = timeFlag(ctx, conn, f.runAt); err != nil {
			return err
		}
		id, err := pg.Enqueue(ctx, conn, a.namespace, j)
		if err != nil {
			return err
		}
		return printID(cmd, id, asJSON)
	})
}

// read is all of the job but its time, which depends on the database's clock.
func (f jobFlags) read(stdin io.Reader, args []string) (pg.NewJob, error) {
	j := f.job
	j.Title, j.MaxRetries, j.RetryDelays = args[0], &f.maxRetries, f.retryDelays
	var err error
	if j.Payload, err = payload(stdin, args[1:]); err != nil {
		return pg.NewJob{}, err
	}
	j.Metadata, err = document("metadata", []byte(f.metadata))
	return j, err
}

func (a *app) enqueueLines(cmd *cobra.Command, asJSON bool) error {
	return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
		w := lineWriter[pg.NewJob]{
			parse: parseJob,
			many: func(ctx context.Context, batch []pg.NewJob) error {
				_, err := pg.EnqueueMany(ctx, conn, a.namespace, batch)
				return err
			},
			one: func(ctx context.Context, j pg.NewJob) error {
				_, err := pg.Enqueue(ctx, conn, a.namespace, j)
				return err
			},
		}
		return w.run(cmd, "enqueued", "jobs", asJSON)
	})
}

// parseJob reads a job whose periods are texts.
func parseJob(l line) (pg.NewJob, error) {
	var j struct {
		pg.NewJob
		UniqueFor   lineDuration   `json:"unique_for"`
		RetryDelays []lineDuration `json:"retry_delays"`
	}
	if err := l.decode(&j); err != nil {
		return pg.NewJob{}, err
	}
	j.NewJob.UniqueFor = time.Duration(j.UniqueFor)
	for _, d := range j.RetryDelays {
		j.NewJob.RetryDelays = append(j.NewJob.RetryDelays, time.Duration(d))
	}
	return j.NewJob, nil
}

type lineDuration time.Duration

func (d *lineDuration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(s)
	*d = lineDuration(parsed)
	return err
}
