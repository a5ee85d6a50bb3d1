package torture

import (
	"fmt"
	"strings"
)

// Report says what was done, and what of it was wrong.
type Report struct {
	Seed       uint64
	Postgres   string
	Crashes    int
	Groups     int
	Counts     map[string]int
	Violations map[string][]string // by kind
}

func (r *run) check(t truth) Report {
	c := newChecker(r.record, r.groups, t)
	for _, what := range r.left {
		c.report(lost, "left in the end: %s", what)
	}
	c.check()
	report := Report{
		Seed: r.Seed, Postgres: t.version, Crashes: len(r.record.crashes), Groups: len(r.groups),
		Counts: r.record.counts, Violations: c.violations,
	}
	report.Counts["published"] = len(t.events)
	report.Counts["transactions"] = len(r.record.transactions)
	for _, tx := range r.record.transactions {
		report.Counts[map[outcome]string{committed: "committed", rolledBack: "rolled back", inDoubt: "in doubt"}[tx.outcome]]++
	}
	for _, h := range r.record.handouts {
		report.Counts["leases"]++
		report.Counts["handed out"] += len(h.events)
		for _, e := range h.events {
			if e.delivery > 1 {
				report.Counts["retried"]++
			}
		}
	}
	for _, h := range t.handled {
		report.Counts[h.outcome]++
	}
	report.Counts["dead"] = len(t.dead)
	return report
}

// Failed tells whether anything was wrong.
func (r Report) Failed() bool { return len(r.Violations) > 0 }

// String is one line, fit for documents.
func (r Report) String() string {
	n := r.Counts
	line := fmt.Sprintf("torture seed %d on PostgreSQL %s, %d crashes, %d broken connections: "+
		"published %d in %d transactions (%d rolled back, %d in doubt); "+
		"%d groups: handed out %d in %d leases, done %d, retried %d, dead %d, late settlements refused %d; ",
		r.Seed, r.Postgres, r.Crashes, n["broken connections"],
		n["published"], n["transactions"], n["rolled back"], n["in doubt"],
		r.Groups, n["handed out"], n["leases"], n[done], n["retried"], n["dead"], n["refused"])
	var verdicts []string
	for _, kind := range []string{lost, invented, doubled, misordered, overlapped, overdone} {
		verdicts = append(verdicts, fmt.Sprintf("%s %d", kind, len(r.Violations[kind])))
	}
	return line + strings.Join(verdicts, ", ")
}
