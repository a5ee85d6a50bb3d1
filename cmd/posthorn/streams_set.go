package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/seal/keeper"
)

func newStreamsSet(a *app) *cobra.Command {
	var p admin.StreamPolicy
	cmd := changeCommand{
		about: about{
			use:   "set STREAM --level open|restricted|confidential",
			short: op.SetStreamPolicy.Does,
			long: `Set the level of a stream. Publishers obey it at once, and servers within five
seconds. Events that were published before stay as they are: plain text stays
plain text, and sealed payloads stay sealed, and readable with the right to read
the stream.

--keeper names the keeper that wraps the next keys of a confidential stream. Each
process gives its URL with a --keeper NAME=URL of its own; a stream without a
named keeper uses that of --seal-key.`,
			example: `  posthorn streams set payroll --level restricted
  posthorn streams set patients --level confidential
  posthorn streams set patients --level confidential --keeper clinic --rotation-days 7`,
		},
		prepare: func(cmd *cobra.Command, _ []string) error {
			if p.RotationDays == 0 && cmd.Flags().Changed("rotation-days") {
				return usageError{errors.New("--rotation-days must be positive"), "leave it out for 30"}
			}
			return nil
		},
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			return result{sentence: fmt.Sprintf("stream %s is %s", args[0], p.SecurityLevel)}, adm.SetStreamPolicy(ctx, args[0], p)
		},
	}.build(a)
	flags := cmd.Flags()
	flags.StringVar(&p.SecurityLevel, "level", "", "open, restricted or confidential")
	flags.StringVar(&p.Keeper, "keeper", "", "the name of the keeper that wraps its keys")
	flags.IntVar(&p.RotationDays, "rotation-days", 0, "the age in days at which a key is replaced (default: 30, or as processes are configured)")
	_ = cmd.MarkFlagRequired("level")
	return cmd
}

func newStreamsShred(a *app) *cobra.Command {
	var upTo int
	cmd := changeCommand{
		about: about{
			use:   "shred STREAM",
			short: op.ShredStreamKeys.Does,
			long: `Destroy keys of a stream. The payloads that were sealed with them are unreadable from
then on, in the log, in brokers, archives and backups; in processes that have a
key in memory, within minutes. Only a backup of the keys that was made before
brings them back: see docs/sealing.md.

The events stay in the log, with their types and keys. New messages get a new key.`,
			example: `  posthorn streams shred patients
  posthorn streams shred patients --up-to 3 --yes`,
		},
		json: true,
		prepare: func(cmd *cobra.Command, args []string) error {
			if upTo < 1 && cmd.Flags().Changed("up-to") {
				return usageError{errors.New("--up-to must be a version, from 1 on"), "run: posthorn streams show " + args[0]}
			}
			return nil
		},
		ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
			question := "make everything that is sealed in stream " + args[0]
			if upTo > 0 {
				question += fmt.Sprintf(" with keys up to %d", upTo)
			}
			return question + " unreadable for good", nil
		},
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			n, err := adm.ShredStreamKeys(ctx, args[0], upTo)
			return result{"destroyed " + op.Counted(n, "key"), map[string]int64{"destroyed": n}}, err
		},
	}.build(a)
	cmd.Flags().IntVar(&upTo, "up-to", 0, "only keys up to this version (default: all)")
	return cmd
}

func newStreamsMakeKey() *cobra.Command {
	cmd := about{
		use:   "make-key FILE",
		short: "Make a key file for confidential streams",
		long: `Make a key file for confidential streams, and print the flag for it. A file that
exists is not changed. Payloads cannot be opened without the file.`,
		example: "  posthorn streams make-key /etc/posthorn/seal.key",
	}.command()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := filepath.Abs(args[0])
		if err == nil {
			err = keeper.NewKeyFile(path)
		}
		switch {
		case errors.Is(err, os.ErrExist):
			return fmt.Errorf("%w: there is a file %s, and it stays as it is", posthorn.ErrConflict, path)
		case errors.Is(err, os.ErrNotExist):
			return hintError{
				fmt.Errorf("%w: there is no directory %s", posthorn.ErrNotFound, filepath.Dir(path)),
				"make it first, readable only for the account that runs Posthorn",
			}
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "Keep a copy, away from copies of the database."); err != nil {
			return err
		}
		return printLine(cmd, "--seal-key file://%s", path)
	}
	return cmd
}
