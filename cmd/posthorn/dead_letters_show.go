package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

func newDeadLettersShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one dead letter, with payload and stack",
		Example: "  posthorn dead-letters show 7",
		Args:    cobra.ExactArgs(1),
	}
	var keepers keeperFlags
	keepers.add(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || id <= 0 {
			return usageError{fmt.Errorf("%q is no id of a dead letter", args[0]), "run: posthorn dead-letters list"}
		}
		return a.withDeadLetters(cmd.Context(), keepers, func(adm *admin.Admin) error {
			found, err := collect(adm.DeadLetters(cmd.Context(), admin.DeadLetterFilter{IDs: []int64{id}}))
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return hintError{
					fmt.Errorf("dead letter %d in namespace %s: %w", id, a.namespace, posthorn.ErrNotFound),
					"run: posthorn dead-letters list",
				}
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), found[0])
			}
			return printDeadLetter(cmd.OutOrStdout(), found[0])
		})
	}
	return cmd
}

// withDeadLetters is withAdmin with payloads of dead letters opened, as far as they
// open with the keepers.
func (a *app) withDeadLetters(ctx context.Context, keepers keeperFlags, use func(adm *admin.Admin) error) error {
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		return keepers.withOpener(ctx, conn, a.log, func(opener admin.Opener) error {
			return use(admin.New(conn, a.namespace).Opening(opener))
		})
	})
}

// collect reads all that an iterator yields, up to an error.
func collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	var list []T
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

func printDeadLetter(w io.Writer, d admin.DeadLetter) error {
	f := newFields(w)
	f.field("id", d.ID)
	f.field("group", d.Group)
	f.field("subscription", d.Subscription)
	f.field("reason", d.Reason)
	f.field("error", d.Error)
	f.field("attempts", d.Attempts)
	f.field("failed at", d.FailedAt)
	f.field("node", d.Node)
	f.field("event", d.EventID)
	f.field("stream", d.Stream)
	f.field("type", d.Type)
	f.field("key", d.Key)
	f.field("tags", strings.Join(d.Tags, ", "))
	f.field("published at", d.PublishedAt)
	if err := f.flush(); err != nil {
		return err
	}
	var parts strings.Builder
	heading := "payload"
	if d.Sealed {
		heading += " (sealed)"
	}
	parts.WriteString("\n" + heading + "\n" + indented(d.Payload) + "\n")
	if string(d.Metadata) != "{}" {
		parts.WriteString("\nmetadata\n" + indented(d.Metadata) + "\n")
	}
	if d.Stack != "" {
		parts.WriteString("\nstack\n" + strings.TrimRight(d.Stack, "\n") + "\n")
	}
	_, err := io.WriteString(w, parts.String())
	return err
}

func indented(document json.RawMessage) string {
	var buffer bytes.Buffer
	if json.Indent(&buffer, document, "", "  ") != nil {
		return string(document)
	}
	return buffer.String()
}
