package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/seal/keeper"
)

func newStreams(a *app) *cobra.Command {
	return holding(about{
		use:   "streams",
		short: "See streams, and say who may read them",
		long: `A stream is open to the whole namespace; restricted to API tokens that name it; or
confidential: restricted, and its payloads are sealed before they reach the
database. See docs/access.md and docs/sealing.md.`,
	},
		newStreamsList(a),
		streamsShow.of(a),
		newStreamsSet(a),
		streamsRotate.of(a),
		newStreamsShred(a),
		newStreamsMakeKey(),
	)
}

func newStreamsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List streams, by name",
		Example: `  posthorn streams list
  posthorn streams list --after orders --limit 20 --json`,
		Args: cobra.NoArgs,
	}
	after := cmd.Flags().String("after", "", "only those after this name")
	var limit int
	limitVar(cmd.Flags(), &limit, 1000, mostListed, "list so many")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			streams, err := adm.Streams(cmd.Context(), admin.StreamFilter{After: *after, Limit: limit + 1}) // to see whether there are more
			if err != nil {
				return err
			}
			if streams, err = cut(cmd, streams, limit); err != nil {
				return err
			}
			return streamColumns.printOrJSON(cmd.OutOrStdout(), streams, *asJSON)
		})
	}
	return cmd
}

var streamColumns = columns[admin.Stream]{"stream|level|key|key age|keeper|created", func(s admin.Stream) []any {
	return []any{s.Name, s.SecurityLevel, numberOf(s.ActiveKey), keyAge(s), s.Keeper, s.CreatedAt}
}}

// numberOf leaves out a number that there is not.
func numberOf[N int | int64](n N) any {
	if n == 0 {
		return nil
	}
	return n
}

func keyAge(s admin.Stream) any {
	if s.ActiveKeyCreated.IsZero() {
		return nil
	}
	age := s.ActiveKeyAge
	if age >= 48*time.Hour {
		return fmt.Sprintf("%dd", int(age.Hours()/24))
	}
	return age.Round(time.Second)
}

// streamDetails is what is printed about one stream.
type streamDetails struct {
	admin.Stream
	Keys []admin.StreamKey `json:"keys"`
}

var streamsShow = showing[streamDetails]{
	about: about{
		use:     "show STREAM",
		short:   "Show a stream and its keys",
		example: "  posthorn streams show patients",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d streamDetails, err error) {
		if d.Stream, err = adm.Stream(ctx, name); err != nil {
			return d, err
		}
		keys, err := adm.StreamKeys(ctx, name)
		d.Keys = append([]admin.StreamKey{}, keys...)
		return d, err
	},
	print: printStream,
}

func printStream(w io.Writer, d streamDetails) error {
	f := newFields(w)
	f.field("stream", d.Name)
	f.field("level", d.SecurityLevel)
	f.field("created at", d.CreatedAt)
	if d.SecurityLevel == "confidential" {
		f.field("encryption", d.EncryptionAlg)
		f.field("keeper", d.Keeper)
		f.field("rotation days", numberOf(d.RotationDays))
		f.field("active key", numberOf(d.ActiveKey))
	}
	if err := f.flush(); err != nil {
		return err
	}
	return keyColumns.printBelow(w, d.Keys)
}

var keyColumns = columns[admin.StreamKey]{"key|created|keeper|messages, at most|retired|destroyed", func(k admin.StreamKey) []any {
	return []any{k.Version, k.CreatedAt, k.Keeper, k.Used, k.RetiredAt, k.DestroyedAt}
}}

func newStreamsSet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set STREAM --level open|restricted|confidential",
		Short: "Say who may read a stream, and whether it is encrypted",
		Long: `Publishing heeds a new level at once; servers let readers in by it within five
seconds. What was published before stays as it is: plain text stays plain text,
and what is sealed stays sealed and readable for who may read the stream.

Of a confidential stream, --keeper names what wraps its next keys. Each process
says which URL that is, with its own --keeper NAME=URL; without a name it is the
one of --seal-key.`,
		Example: `  posthorn streams set payroll --level restricted
  posthorn streams set patients --level confidential
  posthorn streams set patients --level confidential --keeper clinic --rotation-days 7`,
		Args: cobra.ExactArgs(1),
	}
	var p admin.StreamPolicy
	flags := cmd.Flags()
	flags.StringVar(&p.SecurityLevel, "level", "", "open, restricted or confidential")
	flags.StringVar(&p.Keeper, "keeper", "", "the name of what wraps its keys")
	flags.IntVar(&p.RotationDays, "rotation-days", 0, "the age at which a key is replaced (default: 30, or what processes say)")
	_ = cmd.MarkFlagRequired("level")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p.RotationDays == 0 && cmd.Flags().Changed("rotation-days") {
			return usageError{errors.New("--rotation-days must be positive"), "leave it out for 30"}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := adm.SetStreamPolicy(cmd.Context(), args[0], p); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "stream %s is %s\n", args[0], p.SecurityLevel)
			return err
		})
	}
	return cmd
}

var streamsRotate = doing{
	about: about{
		use:   "rotate STREAM",
		short: "Let a confidential stream have a new key",
		long: `The next message is sealed with a new key, which its publisher makes. Publishers
that run follow when they look at their keys again, within minutes. What older keys
sealed stays readable.`,
		example: "  posthorn streams rotate patients",
	},
	do: done("stream %s gets a new key with its next message", (*admin.Admin).RotateStreamKey),
}

func newStreamsShred(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shred STREAM",
		Short: "Destroy keys of a stream: what they sealed is unreadable for good",
		Long: `What the keys sealed is unreadable from then on, in the log, in brokers, archives and
backups; in processes that have a key in memory, within minutes. Nothing brings it
back, except a backup of the keys from before: see docs/sealing.md.

Events stay where they are, with their types and keys. New messages get a new key.`,
		Example: `  posthorn streams shred patients
  posthorn streams shred patients --up-to 3 --yes`,
		Args: cobra.ExactArgs(1),
	}
	upTo := cmd.Flags().Int("up-to", 0, "only keys up to this version (default: all)")
	yes := yesFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what := "make everything that is sealed in stream " + args[0]
		switch {
		case cmd.Flags().Changed("up-to") && *upTo < 1:
			return usageError{errors.New("--up-to must be a version, from 1 on"), "run: posthorn streams show " + args[0]}
		case *upTo > 0:
			what += fmt.Sprintf(" with keys up to %d", *upTo)
		}
		if err := confirm(cmd, *yes, what+" unreadable for good"); err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			n, err := adm.ShredStreamKeys(cmd.Context(), args[0], *upTo)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"destroyed": n})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "destroyed %d keys\n", n)
			return err
		})
	}
	return cmd
}

func newStreamsMakeKey() *cobra.Command {
	return &cobra.Command{
		Use:   "make-key FILE",
		Short: "Make a key file for confidential streams",
		Long: `It prints the flag that names it. A file that is there already stays as it is.
Without the key, what it protects is lost.`,
		Example: "  posthorn streams make-key /etc/posthorn/seal.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err == nil {
				err = keeper.NewKeyFile(path)
			}
			switch {
			case errors.Is(err, os.ErrExist):
				return fmt.Errorf("%w: there is a file %s, and it stays as it is", posthorn.ErrConflict, path)
			case errors.Is(err, os.ErrNotExist):
				return hintError{fmt.Errorf("%w: there is no directory %s", posthorn.ErrNotFound, filepath.Dir(path)), "make it first, for the account alone that runs Posthorn"}
			case err != nil:
				return err
			}
			if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "Keep a copy, away from copies of the database."); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "--seal-key file://%s\n", path)
			return err
		},
	}
}
