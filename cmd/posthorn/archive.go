package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/op"
)

const archiveLong = `Write the events of a namespace to object storage, until Ctrl-C: all events of the
log, and those that are published from then on. Any number of processes may run
this for one archive; they share the work, and each event is written once.

  s3://bucket/prefix?region=eu-central-1    credentials as for every AWS program;
                                            also endpoint=… and use_path_style=true
  file:///var/archive                       a directory

A segment is written when it has 8 MiB, or when its oldest event has waited for 5
minutes. Retention keeps events that are not archived. Like every node this one
does upkeep.`

const archiveExample = `  posthorn archive s3://events?region=eu-central-1 --namespace shop
  posthorn archive file:///var/archive --segment-age 1h
  posthorn archive verify s3://events?region=eu-central-1 --namespace shop
  posthorn archive list`

const defaultArchive = "archive"

func newArchive(a *app) *cobra.Command {
	cmd := about{"archive URL", "Keep events in object storage, and read them back", archiveLong, archiveExample}.command()
	var config archive.Config
	flags := cmd.Flags()
	flags.StringVar(&config.Name, "name", defaultArchive, "the name of the archive and of its group")
	flags.Int64Var(&config.SegmentBytes, "segment-bytes", 0, "the size of a segment, in bytes of payload (default 8388608)")
	flags.IntVar(&config.SegmentEvents, "segment-events", 0, "the size of a segment, in events (default 100000)")
	flags.DurationVar(&config.SegmentAge, "segment-age", 0, "how long the oldest event of a segment waits at most (default 5m)")
	flags.IntVar(&config.Workers, "workers", 4, "how many streams this process writes at once")
	flags.BoolVar(&config.Moved, "moved", false, "the whole archive was copied to this URL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ignoreInterrupt(cmd.Context(), a.archive(cmd, args[0], config))
	}
	cmd.AddCommand(list(a, op.ListArchives, archivesHelp, archiveColumns), archiveShow.build(a), newArchiveVerify(a), newArchiveReplay(a), newArchiveRestore(a), archiveRelist.build(a))
	return cmd
}

func (a *app) archive(cmd *cobra.Command, url string, config archive.Config) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	return a.withStore(ctx, url, archive.Open, func(store *archive.Store, ph *posthorn.Client) error {
		if err := printLine(cmd, "trying %s", store.Location()); err != nil {
			return err
		}
		if err := store.Reach(ctx); err != nil {
			return err
		}
		config.Namespace = a.namespace
		config.Logger = ph.Logger()
		archiver := archive.New(ph.Pool(), store, config)
		if err := archiver.Define(ctx); err != nil {
			return err
		}
		if err := printLine(cmd, "archiving namespace %s to %s", a.namespace, store.Location()); err != nil {
			return err
		}
		node := make(chan error, 1)
		go func() {
			defer cancel()
			node <- ph.Run(ctx)
		}()
		err := archiver.Run(ctx)
		cancel()
		return errors.Join(err, <-node)
	})
}

// withStore runs use with the store of an archive and a client.
func (a *app) withStore(
	ctx context.Context, url string, open func(context.Context, string) (*archive.Store, error),
	use func(store *archive.Store, ph *posthorn.Client) error,
) error {
	store, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	ph, err := a.client(ctx, "posthorn archive", nil)
	if err != nil {
		return err
	}
	defer ph.Close()
	return use(store, ph)
}

const archivesHelp = `LAG is the number of events that are not in the store yet, an estimate beyond
10,000, and BEHIND how long the oldest of them has waited.`

var archiveColumns = columns[admin.ArchiveStatus]{"archive|location|state|lag|behind|segments|events|size", func(s admin.ArchiveStatus) []any {
	return []any{s.Archive, s.Location, archiveState(s), s.LagEvents, roughSeconds(s.LagSeconds), s.Segments, s.Events, roughBytes(s.Size)}
}}

func archiveState(s admin.ArchiveStatus) string {
	switch {
	case s.Paused:
		return "paused"
	case s.FailingStreams > 0:
		return fmt.Sprintf("%d failing", s.FailingStreams)
	case s.LagEvents == 0:
		return "up to date"
	default:
		return "behind"
	}
}

// roughBytes formats a size for people.
func roughBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 {
		size /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

var archiveShow = showCommand[op.ArchiveDetails]{
	about:       aboutOf(op.GetArchive, ""),
	defaultName: defaultArchive,
	load: func(ctx context.Context, adm *admin.Admin, name string) (op.ArchiveDetails, error) {
		return op.GetArchive.Call(ctx, adm, &op.ByName{Name: name})
	},
	fields: archiveFields,
	below:  printArchivedStreams,
}

func archiveFields(field fields, d op.ArchiveDetails) {
	field("archive", d.Archive)
	field("location", d.Location)
	field("state", archiveState(d.ArchiveStatus))
	field("lag", fmt.Sprintf("%d events %s", d.LagEvents, roughSeconds(d.LagSeconds)))
	field("waiting for a segment", fmt.Sprintf("%d events, %s", d.PendingEvents, roughBytes(d.PendingBytes)))
	field("oldest of them read", d.OldestPart)
	field("segments to write", d.UnwrittenSegments)
	field("written", fmt.Sprintf("%d events in %d segments, %s of %s", d.Events, d.Segments, roughBytes(d.Size), roughBytes(d.Bytes)))
	field("last written", d.LastWrittenAt)
}

func printArchivedStreams(w io.Writer, d op.ArchiveDetails) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return archivedColumns.print(w, d.EachStream)
}

var archivedColumns = columns[admin.ArchivedStream]{"stream|first|last|segments|events|waiting|owner|error", func(s admin.ArchivedStream) []any {
	owner := s.OwnerID
	if s.LeaseUntil.Before(time.Now()) {
		owner = ""
	}
	return []any{s.Stream, numberOf(s.FirstID), numberOf(s.LastID), s.Segments, s.Events, s.PendingEvents, owner, s.Error}
}}

var archiveRelist = changeCommand{
	about: aboutOf(op.RelistArchive, ""),
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		in := &op.ByName{Name: append(args, defaultArchive)[0]}
		out, err := op.RelistArchive.Call(ctx, adm, in)
		return result{sentence: op.RelistArchive.Done(in, out)}, err
	},
}
