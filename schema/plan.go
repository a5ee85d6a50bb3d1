package schema

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Plan is what [Migrate] would do. It does so in one transaction, so a lock is held from its step to the
// end.
type Plan struct {
	From  Version       `json:"from"` // zero if there is no schema
	To    Version       `json:"to"`
	Steps []PlannedStep `json:"steps"` // none if the database is up to date
}

// PlannedStep is a file that is run.
type PlannedStep struct {
	Name  string        `json:"name"`
	Locks []PlannedLock `json:"locks"`
}

// PlannedLock is a lock on a table or view that is there before the migration. Locks for which neither
// reads nor writes wait are left out, and so are those on what the migration makes.
type PlannedLock struct {
	Relation string `json:"relation"`
	Lock     string `json:"lock"`
	Waits    string `json:"waits"` // the statements of others that wait for the lock
}

func (b bundle) plan(ctx context.Context, db Querier) (Plan, error) {
	s, err := b.state(ctx, db)
	if err == nil {
		err = s.refusal()
	}
	if err != nil {
		return Plan{}, err
	}
	p := Plan{From: s.Database, To: s.Database, Steps: []PlannedStep{}}
	steps := b.steps(s)
	if len(steps) == 0 {
		return p, nil
	}
	p.To = b.version
	there, err := relations(ctx, db)
	if err != nil {
		return Plan{}, err
	}
	for _, step := range steps {
		p.Steps = append(p.Steps, PlannedStep{step.Name, step.locks(there)})
	}
	return p, nil
}

// relations returns the tables and views of Posthorn.
func relations(ctx context.Context, db Querier) (map[string]bool, error) {
	var names []string
	err := db.QueryRow(ctx, `
		select coalesce(array_agg(c.relname::text), '{}') from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'posthorn' and c.relkind in ('r', 'p', 'v', 'm', 'S')`, pgx.QueryExecModeSimpleProtocol).Scan(&names)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there["posthorn."+name] = true
	}
	return there, nil
}

// The locks of statements for which reads or writes of others wait, by their strength.
var (
	share             = PlannedLock{Lock: "SHARE", Waits: "writes"}
	shareRowExclusive = PlannedLock{Lock: "SHARE ROW EXCLUSIVE", Waits: "writes"}
	accessExclusive   = PlannedLock{Lock: "ACCESS EXCLUSIVE", Waits: "reads and writes"}
	strength          = []string{share.Lock, shareRowExclusive.Lock, accessExclusive.Lock}
)

// lockings tell which statements take which locks. Each pattern has the name of the relation as its group, or those of a table
// and of a column whose sequence it is. A statement that refers to several relations matches several times.
var lockings = []struct {
	pattern *regexp.Regexp
	lock    PlannedLock
}{
	{statement(`create (?:or replace )?(?:materialized )?view ([\w.]+)`), accessExclusive},
	{statement(`create (?:unique )?index .*?\bon (?:only )?([\w.]+)`), share},
	{statement(`create (?:or replace )?(?:constraint )?trigger .*?\bon ([\w.]+)`), shareRowExclusive},
	{statement(`create (?:unlogged )?table .*?\bpartition of ([\w.]+)`), accessExclusive},
	{statement(`alter (?:table|view|materialized view) (?:if exists )?(?:only )?([\w.]+)`), accessExclusive},
	{statement(`alter table (?:only )?([\w.]+) alter column (\w+) drop identity`), accessExclusive},
	{regexp.MustCompile(`(?i)\breferences ([\w.]+)`), shareRowExclusive},
	{statement(`alter sequence (?:if exists )?([\w.]+)`), shareRowExclusive},
	{statement(`drop (?:table|view|materialized view|sequence) (?:if exists )?([\w.]+)`), accessExclusive},
	{statement(`drop trigger (?:if exists )?\w+ on ([\w.]+)`), accessExclusive},
	{statement(`truncate (?:table )?(?:only )?([\w.]+)`), accessExclusive},
	{statement(`refresh materialized view ([\w.]+)`), accessExclusive},
	{statement(`lock (?:table )?(?:only )?([\w.]+)`), accessExclusive},
}

func statement(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?is)^\s*` + pattern) }

// quoted is what no statement of a migration begins or ends in: comments, texts, and bodies of functions.
var quoted = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$\$.*?\$\$|\bbegin atomic\b.*?\nend\b`)

// locks returns the strongest lock on each relation, in the order of their names. there has those that
// are there before.
func (s Step) locks(there map[string]bool) []PlannedLock {
	taken := map[string]PlannedLock{}
	for text := range strings.SplitSeq(quoted.ReplaceAllString(s.SQL, " "), ";") {
		for _, l := range lockings {
			for _, match := range l.pattern.FindAllStringSubmatch(text, -1) {
				lock := l.lock
				lock.Relation = match[1]
				if len(match) > 2 {
					lock.Relation += "_" + match[2] + "_seq"
				}
				if there[lock.Relation] && slices.Index(strength, taken[lock.Relation].Lock) <= slices.Index(strength, lock.Lock) {
					taken[lock.Relation] = lock
				}
			}
		}
	}
	locks := []PlannedLock{}
	for _, lock := range taken {
		locks = append(locks, lock)
	}
	slices.SortFunc(locks, func(a, b PlannedLock) int { return cmp.Compare(a.Relation, b.Relation) })
	return locks
}
