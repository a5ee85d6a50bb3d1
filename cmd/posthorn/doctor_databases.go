package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

// databaseFinding is a finding of one of several databases.
type databaseFinding struct {
	Database string `json:"database"`
	admin.Finding
}

// doctorTimeout limits the examination of one of several databases.
const doctorTimeout = 45 * time.Second

// doctorOfDatabases examines several databases at the same time. One that is away is a finding that fails, and the worst
// finding of all decides the exit status.
func (a *app) doctorOfDatabases(cmd *cobra.Command, databases []namedDatabase, f keeperFlags, asJSON bool) error {
	ctx := cmd.Context()
	urls, err := f.urls()
	if err != nil {
		return err
	}
	keepers := tryKeepers(ctx, urls)
	found := make([][]admin.Finding, len(databases))
	var examined sync.WaitGroup
	for i, db := range databases {
		examined.Go(func() { found[i] = a.of(db).examine(ctx, keepers) })
	}
	examined.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	var all []databaseFinding
	var inNeed []string
	for i, db := range databases {
		for _, one := range found[i] {
			all = append(all, databaseFinding{db.name, one})
		}
		if admin.Worst(found[i]) == admin.Fail {
			inNeed = append(inNeed, db.name)
		}
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), all)
	} else {
		err = printFindingsOf(cmd, databases, found)
	}
	if err == nil && len(inNeed) > 0 {
		err = fmt.Errorf("needing attention: %s", strings.Join(inNeed, ", "))
	}
	return err
}

func printFindingsOf(cmd *cobra.Command, databases []namedDatabase, found [][]admin.Finding) error {
	for i, db := range databases {
		if err := printLine(cmd, "%s", "database "+db.name); err != nil {
			return err
		}
		if err := printFindings(cmd.OutOrStdout(), found[i]); err != nil {
			return err
		}
	}
	return nil
}

// examine is the doctor's examination of one of several databases.
func (a *app) examine(ctx context.Context, keepers map[string]error) []admin.Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, doctorTimeout, fmt.Errorf("no answer within %s", doctorTimeout))
	defer cancel()
	conn, err := a.connect(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return []admin.Finding{away(err)}
	}
	defer disconnect(ctx, conn)
	return admin.Doctor(ctx, conn, keepers)
}

func away(err error) admin.Finding {
	f := admin.Finding{Check: "connection", Level: admin.Fail, Found: err.Error(), Things: 1, ExaminedAt: time.Now()}
	if hint := (hintError{}); errors.As(err, &hint) {
		f.Advice = hint.hint
	} else {
		f.Advice = posthorn.Hint(err)
	}
	return f
}
