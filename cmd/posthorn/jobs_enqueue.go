package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const jobsEnqueueLong = `Enqueue one job and print its id, or with --lines many.

PAYLOAD is JSON, {} if it is left out; - reads it from the standard input.
While a --unique-key is in use, the printed id is that of the job which has it.

With --lines each line of the standard input is a job, a JSON object with the
fields title, payload, tags, description, priority, run_at, max_retries,
unique_key, unique_for, retry_delays, fair_key, weight, metadata and after; only title
is required, and periods are like 90s or 1h30m. Jobs are enqueued in order, up to 1,000 in one
` + linesHelp

const jobsEnqueueExample = `  posthorn jobs enqueue 'send welcome mail' '{"user": 7}' --tag mail
  posthorn jobs enqueue report --tag reports --run-at 2h --unique-key report-7
  posthorn jobs enqueue 'send report' --tag mail --after 7 --after 8
  posthorn jobs enqueue --lines < jobs.jsonl`

type jobFlags struct {
	job             posthorn.NewJob
	runAt, metadata string
	maxRetries      int
}

func newJobsEnqueue(a *app) *cobra.Command {
	cmd := about{"enqueue TITLE [PAYLOAD] | enqueue --lines", op.EnqueueJob.Does, jobsEnqueueLong, jobsEnqueueExample}.command()
	var f jobFlags
	flags := cmd.Flags()
	flags.StringArrayVar(&f.job.Tags, "tag", nil, "a tag, by which workers find the job; may be repeated")
	flags.StringVar(&f.job.Description, "description", "", "more about the job, for people")
	numberVar(flags, &f.job.Priority, "priority", 0, -mostInSQL, mostInSQL, "higher goes first")
	flags.StringVar(&f.runAt, "run-at", "", "the earliest start: a time, or a duration from now")
	numberVar(flags, &f.maxRetries, "max-retries", 3, 0, 1_000_000, "how many attempts may fail")
	flags.DurationSliceVar(&f.job.RetryDelays, "retry-delay", nil, "the delay before a further attempt (default 5m); repeated: one after the other")
	flags.StringVar(&f.job.UniqueKey, "unique-key", "", "jobs with the same key become one job")
	flags.DurationVar(&f.job.UniqueFor, "unique-for", 0, "how long the key is in use (default: while the job is pending)")
	flags.StringVar(&f.job.FairKey, "fair-key", "", "under each tag, jobs take turns by this key, such as the name of a tenant")
	flags.Float64Var(&f.job.Weight, "weight", 0, "the share of the fair key: 2 is twice as many turns as 1 (default 1)")
	flags.StringVar(&f.metadata, "metadata", "", "JSON that is stored beside the payload")
	flags.Int64SliceVar(&f.job.After, "after", nil, "the id of a job that must be completed before; may be repeated")
	asJSON := jsonFlag(cmd)
	oneOrLines(cmd, "read jobs from the standard input, one a line",
		[]string{"tag", "description", "priority", "run-at", "max-retries", "retry-delay", "unique-key", "unique-for", "fair-key", "weight", "metadata", "after"},
		func(args []string) error { return a.enqueueOne(cmd, args, f, *asJSON) },
		func() error { return a.enqueueLines(cmd, *asJSON) })
	return cmd
}

func (a *app) enqueueOne(cmd *cobra.Command, args []string, f jobFlags, asJSON bool) error {
	ctx := cmd.Context()
	given := cmd.Flags().Changed
	if err := checkZeros(given("weight") && f.job.Weight == 0, given("unique-for") && f.job.UniqueFor == 0); err != nil {
		return err
	}
	j, err := f.read(input{ctx, cmd.InOrStdin()}, args)
	if err != nil {
		return err
	}
	return a.withClient(ctx, keeperFlags{}, func(ph *posthorn.Client) (err error) {
		if j.RunAt, err = futureFlag(ctx, ph.Admin(), f.runAt); err != nil {
			return err
		}
		ids, err := ph.Enqueue(ctx, ph.Pool(), j)
		if err != nil {
			return err
		}
		return printID(cmd, ids[0], asJSON)
	})
}

// read reads the job, without its time, which depends on the database's clock.
func (f jobFlags) read(stdin io.Reader, args []string) (posthorn.NewJob, error) {
	j := f.job
	j.Title, j.MaxRetries = args[0], maxRetries(f.maxRetries)
	raw, err := payload(stdin, args[1:])
	if err != nil {
		return j, err
	}
	j.Payload = optional(raw)
	j.Metadata, err = metadataFlag(f.metadata)
	return j, err
}

// checkZeros refuses zeros that are given: in a job they would mean the defaults.
func checkZeros(weight, uniqueFor bool) error {
	switch {
	case weight:
		return usageError{errors.New("weight must be 0.001 to 1000, not 0"), "leave it out for 1"}
	case uniqueFor:
		return usageError{errors.New("unique_for must be from a second to 10 years, not 0"), "leave it out to keep the key in use while the job is pending"}
	}
	return nil
}

// maxRetries is a number of retries as a job has it: there, zero means the default.
func maxRetries(n int) int { return cmp.Or(n, posthorn.NoRetries) }

func (a *app) enqueueLines(cmd *cobra.Command, asJSON bool) error {
	return a.withClient(cmd.Context(), keeperFlags{}, func(ph *posthorn.Client) error {
		w := lineWriter[posthorn.NewJob]{
			verb: "enqueued", thing: "job",
			parse: parseJob,
			write: func(ctx context.Context, batch []posthorn.NewJob) error {
				_, err := ph.Enqueue(ctx, ph.Pool(), batch...)
				return err
			},
		}
		return w.run(cmd, asJSON)
	})
}

func parseJob(l line) (posthorn.NewJob, error) {
	var j admin.NewJob
	if err := l.decode(&j); err != nil {
		return posthorn.NewJob{}, err
	}
	job := posthorn.NewJob{
		Title: j.Title, Description: j.Description, Tags: j.Tags, Payload: optional(j.Payload), Priority: j.Priority, RunAt: j.RunAt,
		UniqueKey: j.UniqueKey, FairKey: j.FairKey, Metadata: metadata(j.Metadata), After: j.After,
	}
	if j.Weight != nil {
		job.Weight = *j.Weight
	}
	var err error
	if job.RetryDelays, err = durations(j.RetryDelays); err != nil {
		return job, l.wrong(err)
	}
	if j.UniqueFor != "" {
		if job.UniqueFor, err = time.ParseDuration(j.UniqueFor); err != nil {
			return job, l.wrong(err)
		}
	}
	if j.MaxRetries != nil {
		if job.MaxRetries = maxRetries(int(*j.MaxRetries)); *j.MaxRetries < 0 {
			return job, l.wrong(errors.New("max_retries must be 0 to 1000000"))
		}
	}
	return job, l.wrong(checkZeros(j.Weight != nil && job.Weight == 0, j.UniqueFor != "" && job.UniqueFor == 0))
}

// durations reads periods such as 90s.
func durations(texts []string) ([]time.Duration, error) {
	all := make([]time.Duration, len(texts))
	for i, text := range texts {
		var err error
		if all[i], err = time.ParseDuration(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}
