package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newStreams(a *app) *cobra.Command {
	return parent(about{
		use:   "streams",
		short: "Show streams, and set who may read them",
		long: `A stream is open to the whole namespace; restricted to API tokens that name it; or
confidential: restricted, and its payloads are sealed before they reach the
database. See docs/access.md and docs/sealing.md.`,
	},
		newStreamsList(a),
		show(a, op.GetStream, streamFields, func(w io.Writer, d op.StreamDetails) error { return keyColumns.printBelow(w, d.Keys) }),
		newStreamsSet(a),
		change(a, op.RotateStreamKey),
		newStreamsShred(a),
		newStreamsMakeKey(),
	)
}

func newStreamsList(a *app) *cobra.Command {
	var f admin.StreamFilter
	cmd := listCommand[admin.Stream]{
		about: aboutOf(op.ListStreams, ""),
		limit: &f.Limit,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.Stream, error) {
			return adm.Streams(ctx, f)
		},
		columns: columns[admin.Stream]{"stream|level|key|key age|keeper|created", func(s admin.Stream) []any {
			return []any{s.Name, s.SecurityLevel, numberOf(s.ActiveKey), keyAge(s), s.Keeper, s.CreatedAt}
		}},
	}.build(a)
	cmd.Flags().StringVar(&f.After, "after", "", "only those after this name")
	limitVar(cmd.Flags(), &f.Limit, 1000, mostListed, "list so many")
	return cmd
}

// numberOf makes a number that is zero, and so missing, an empty cell.
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

func streamFields(field fields, d op.StreamDetails) {
	field("stream", d.Name)
	field("level", d.SecurityLevel)
	field("created at", d.CreatedAt)
	if d.SecurityLevel == "confidential" {
		field("encryption", d.EncryptionAlg)
		field("keeper", d.Keeper)
		field("rotation days", numberOf(d.RotationDays))
		field("active key", numberOf(d.ActiveKey))
	}
}

var keyColumns = columns[admin.StreamKey]{"key|created|keeper|messages, at most|retired|destroyed", func(k admin.StreamKey) []any {
	return []any{k.Version, k.CreatedAt, k.Keeper, k.Used, k.RetiredAt, k.DestroyedAt}
}}
