package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
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
		streamsShow.build(a),
		newStreamsSet(a),
		streamsRotate.build(a),
		newStreamsShred(a),
		newStreamsMakeKey(),
	)
}

func newStreamsList(a *app) *cobra.Command {
	var f admin.StreamFilter
	cmd := listCommand[admin.Stream]{
		about: about{
			use:   "list",
			short: "List streams, by name",
			example: `  posthorn streams list
  posthorn streams list --after orders --limit 20 --json`,
		},
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

// streamDetails is a stream as posthorn streams show prints it.
type streamDetails struct {
	admin.Stream
	Keys []admin.StreamKey `json:"keys"`
}

var streamsShow = showCommand[streamDetails]{
	about: about{
		use:     "show STREAM",
		short:   "Show a stream and its keys",
		example: "  posthorn streams show patients",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d streamDetails, err error) {
		if d.Stream, err = adm.Stream(ctx, name); err != nil {
			return d, err
		}
		d.Keys, err = adm.StreamKeys(ctx, name)
		return d, err
	},
	fields: streamFields,
	below:  func(w io.Writer, d streamDetails) error { return keyColumns.printBelow(w, d.Keys) },
}

func streamFields(field fields, d streamDetails) {
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
