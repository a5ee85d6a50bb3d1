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
)

const archiveLong = `Write the events of a namespace to object storage, until Ctrl-C: all that the log
has, and what is published from then on. Any number of processes may do it for
one archive; they share the work, and each event is written once.

  s3://bucket/prefix?region=eu-central-1    credentials as for every AWS program;
                                            also endpoint=… and use_path_style=true
  file:///var/archive                       a directory

Events wait for a segment to fill up: 8 MiB, or 5 minutes, unless said otherwise.
Retention drops nothing that is not archived. Like every node this one does
upkeep.`

const archiveExample = `  posthorn archive s3://events?region=eu-central-1 --namespace shop
  posthorn archive file:///var/archive --segment-age 1h
  posthorn archive verify s3://events?region=eu-central-1 --namespace shop
  posthorn archive list`

func newArchive(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "archive URL",
		Short:   "Keep events in object storage, and get them back",
		Long:    archiveLong,
		Example: archiveExample,
		Args:    cobra.ExactArgs(1),
	}
	var config archive.Config
	flags := cmd.Flags()
	flags.StringVar(&config.Name, "name", "archive", "the archive's name, which is its group's too")
	flags.Int64Var(&config.SegmentBytes, "segment-bytes", 0, "cut a segment at that many bytes of payload (default 8388608)")
	flags.IntVar(&config.SegmentEvents, "segment-events", 0, "cut a segment at that many events (default 100000)")
	flags.DurationVar(&config.SegmentAge, "segment-age", 0, "cut a segment when its oldest event was read that long ago (default 5m)")
	flags.IntVar(&config.Workers, "workers", 4, "how many streams this process writes at once")
	flags.BoolVar(&config.Moved, "moved", false, "the archive was copied, whole, to this URL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return untilTold(cmd.Context(), a.archive(cmd, args[0], config))
	}
	cmd.AddCommand(archiveList.of(a), archiveShow.of(a), newArchiveVerify(a), newArchiveReplay(a), newArchiveRestore(a), newArchiveRelist(a))
	return cmd
}

func (a *app) archive(cmd *cobra.Command, url string, config archive.Config) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	store, ph, err := a.storeAndClient(ctx, url, archive.Open)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	defer ph.Close()
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "trying %s\n", store.Location()); err != nil {
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
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "archiving namespace %s to %s\n", a.namespace, store.Location()); err != nil {
		return err
	}
	kept := make(chan error, 1)
	go func() {
		defer cancel()
		kept <- ph.Run(ctx)
	}()
	err = archiver.Run(ctx)
	cancel()
	return errors.Join(err, <-kept)
}

// storeAndClient opens both; the caller closes them.
func (a *app) storeAndClient(
	ctx context.Context, url string, open func(context.Context, string) (*archive.Store, error),
) (*archive.Store, *posthorn.Client, error) {
	store, err := open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	ph, err := a.client(ctx, "posthorn archive", nil)
	if err != nil {
		_ = store.Close()
	}
	return store, ph, err
}

var archiveList = listing[admin.ArchiveStatus]{
	about: about{
		use:   "list",
		short: "List archives and how far they are",
		long: `List the archives of the namespace and how far they are.

LAG is how many events are not in the store yet, an estimate beyond 10,000, and
BEHIND how long the oldest of them has waited.`,
		example: "  posthorn archive list --namespace shop --json",
	},
	list: (*admin.Admin).Archives,
	columns: columns[admin.ArchiveStatus]{"archive|location|state|lag|behind|segments|events|size", func(s admin.ArchiveStatus) []any {
		return []any{s.Archive, s.Location, archiveState(s), s.LagEvents, roughSeconds(s.LagSeconds), s.Segments, s.Events, roughBytes(s.Size)}
	}},
}

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

// roughBytes is a size for people.
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

// archiveDetails is what is printed about one archive.
type archiveDetails struct {
	admin.ArchiveStatus
	EachStream []admin.ArchivedStream `json:"each_stream"`
}

const defaultArchive = "archive"

var archiveShow = showing[archiveDetails]{
	about: about{
		use:     "show [NAME]",
		short:   "Show an archive, stream by stream",
		example: "  posthorn archive show\n  posthorn archive show cold --json",
	},
	otherwise: defaultArchive,
	load: func(ctx context.Context, adm *admin.Admin, name string) (d archiveDetails, err error) {
		if d.ArchiveStatus, err = adm.Archive(ctx, name); err != nil {
			return d, err
		}
		streams, err := adm.ArchivedStreams(ctx, name)
		d.EachStream = append([]admin.ArchivedStream{}, streams...)
		return d, err
	},
	print: printArchive,
}

func printArchive(w io.Writer, d archiveDetails) error {
	f := newFields(w)
	f.field("archive", d.Archive)
	f.field("location", d.Location)
	f.field("state", archiveState(d.ArchiveStatus))
	f.field("lag", fmt.Sprintf("%d events %s", d.LagEvents, roughSeconds(d.LagSeconds)))
	f.field("waiting for a segment", fmt.Sprintf("%d events, %s", d.PendingEvents, roughBytes(d.PendingBytes)))
	f.field("oldest of them read", d.OldestPart)
	f.field("segments to write", d.UnwrittenSegments)
	f.field("written", fmt.Sprintf("%d events in %d segments, %s of %s", d.Events, d.Segments, roughBytes(d.Size), roughBytes(d.Bytes)))
	f.field("last written", d.LastWrittenAt)
	if err := f.flush(); err != nil {
		return err
	}
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

func newArchiveRelist(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "relist [NAME]",
		Short: "Have all manifests of an archive written again",
		Long: `Have all manifests of an archive written again, from what the database knows:
when they were lost, or verify says that they were altered. Whoever runs the
archive writes them.`,
		Example: "  posthorn archive relist",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				n, err := adm.RelistArchive(cmd.Context(), append(args, defaultArchive)[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the manifests of %d streams will be written again\n", n)
				return err
			})
		},
	}
}
