// Package doctor examines an installation and says what is wrong with it, and
// what to do.
//
// It owns the judgement: what is well, what is worth a warning and what is not.
// The facts come from internal/pg and package schema. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but not for long, not fast or not safely
	Fail Level = "fail" // it does not work, or loses what it promises to keep
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// check examines one thing. Several findings are possible; none is none.
type check struct {
	name    string
	examine func(ctx context.Context, db pg.DB) ([]Finding, error)
}

// Options say what is known of the process that examines.
type Options struct {
	// Keepers are those that it was given for confidential streams, by name, and why
	// each does not open, or nil.
	Keepers map[string]error
}

// The others make sense only when the first have not failed.
var (
	first = []check{{"server", server}, {"rights", rights}, {"schema", installed}}
	rest  = []check{
		{"settings", settings},
		{"roles", roles},
		{"cluster", cluster},
		{"held-back log", heldBack},
		{"clock", clock},
		{"partitions", partitions},
		{"upkeep", upkeep},
		{"groups", groups},
		{"subscriptions", subscriptions},
		{"relays", relays},
		{"archives", archives},
		{"imports", imports},
		{"jobs", jobs},
		{"bloat", bloat},
	}
)

// Examine runs all checks, in order. A check that cannot be made has failed.
func Examine(ctx context.Context, db pg.DB, options Options) []Finding {
	var findings []Finding
	for _, c := range first {
		if findings = append(findings, examine(ctx, db, []check{c})...); Worst(findings) == Fail {
			return findings
		}
	}
	findings = append(findings, examine(ctx, db, rest)...)
	return append(findings, examine(ctx, db, []check{{"confidential streams", options.confidential}})...)
}

func examine(ctx context.Context, db pg.DB, checks []check) []Finding {
	var findings []Finding
	for _, c := range checks {
		found, err := c.examine(ctx, db)
		if err != nil {
			found = []Finding{fail("could not be examined: "+err.Error(), "run it as the owner of the schema, or as a role with posthorn_admin")}
		}
		for _, f := range found {
			f.Check = c.name
			findings = append(findings, f)
		}
	}
	return findings
}

// Worst is the highest level among findings.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		if f.Level == Fail || worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func ok(found string) Finding { return Finding{Level: OK, Found: found} }

func warn(found, advice string) Finding { return Finding{Level: Warn, Found: found, Advice: advice} }

func fail(found, advice string) Finding { return Finding{Level: Fail, Found: found, Advice: advice} }

// orOK is for checks that only speak when something is wrong.
func orOK(findings []Finding, well string) []Finding {
	if len(findings) == 0 {
		return []Finding{ok(well)}
	}
	return findings
}

// rough is a period as people say it: "12s", "5m", "3h5m", "9 days".
func rough(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Second)
	}
	text := d.String()
	if short, whole := strings.CutSuffix(text, "m0s"); whole {
		text = short + "m"
	}
	if short, whole := strings.CutSuffix(text, "h0m"); whole {
		text = short + "h"
	}
	return text
}
