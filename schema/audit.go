package schema

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Audit lists the differences between the objects of schema posthorn and the objects
// that this binary's SQL creates.
type Audit struct {
	Missing    []string // objects that were dropped, for example "function claim"
	Unexpected []string // objects that Posthorn did not create, for example "table orders"
}

// created and dropped match the statements in Posthorn's SQL. They match only at the
// start of a line: statements inside function bodies are indented, and their objects
// are temporary.
var (
	created = regexp.MustCompile(`(?m)^create (?:or replace )?(?:unlogged )?(table|view|materialized view|sequence|type|function) (?:if not exists )?posthorn\.(\w+)( partition of)?`)
	dropped = regexp.MustCompile(`(?m)^drop (table|view|sequence|type) (?:if exists )?posthorn\.(\w+)`)
)

// objects counts the objects that the bundle creates, by kind and name: functions may
// share a name. A file often replaces a function of a migration.
func (b bundle) objects() map[[2]string]int {
	made := count(bootstrap)
	for _, m := range b.migrations {
		maps.Copy(made, count(m.SQL))
		for _, match := range dropped.FindAllStringSubmatch(m.SQL, -1) {
			delete(made, [2]string{match[1], match[2]})
		}
	}
	var functions strings.Builder
	for _, f := range b.functions {
		if f.Name != hooks { // each of its functions is made again, by the file that answers
			functions.WriteString(f.SQL)
		}
	}
	maps.Copy(made, count(functions.String()))
	return made
}

// count counts the objects that a script creates. Partitions are not counted; their
// table is.
func count(sql string) map[[2]string]int {
	made := map[[2]string]int{}
	for _, match := range created.FindAllStringSubmatch(sql, -1) {
		if match[3] == "" {
			made[[2]string{match[1], match[2]}]++
		}
	}
	return made
}

// auditQuery lists the objects of schema posthorn. Functions of conditions, members
// of extensions, and sequences and partitions that belong to a table are not listed.
const auditQuery = `
with ours as (
  select * from unnest($1::text[], $2::text[], $3::int[]) o (kind, name, number)
), there as (
  select 'function' as kind, p.proname::text as name, p.oid::regprocedure::text as shown, 'pg_proc'::regclass as class, p.oid, p.pronamespace as namespace
  from pg_catalog.pg_proc p
  where p.proname !~ '^condition_[0-9]+(_many)?$'
  union all
  select case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'materialized view'
      when 'c' then 'type' when 'f' then 'foreign table' else 'table' end,
    c.relname::text, c.relname::text, 'pg_class'::regclass, c.oid, c.relnamespace
  from pg_catalog.pg_class c
  where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'c') and not c.relispartition
  union all
  select 'type', t.typname::text, t.typname::text, 'pg_type'::regclass, t.oid, t.typnamespace
  from pg_catalog.pg_type t where t.typtype in ('d', 'e', 'r')
  union all
  select 'extension', e.extname::text, e.extname::text, 'pg_extension'::regclass, e.oid, e.extnamespace
  from pg_catalog.pg_extension e
), found as (
  select t.kind, t.name, t.shown from there t
  where t.namespace = 'posthorn'::regnamespace and not exists (
    select from pg_catalog.pg_depend d
    where d.classid = t.class and d.objid = t.oid and d.deptype in ('a', 'i', 'e') and d.refclassid <> 'pg_namespace'::regclass
      and (d.deptype = 'e' or t.kind = 'sequence'))
)
select
  array(
    select o.kind || ' ' || o.name from ours o
    where o.number > (select count(*) from found f where f.kind = o.kind and f.name = o.name)
    order by 1),
  array(
    select f.kind || ' ' || f.shown from found f
    where not exists (select from ours o where o.kind = f.kind and o.name = f.name)
    order by 1)`

func (b bundle) audit(ctx context.Context, db Querier) (Audit, error) {
	s, err := b.state(ctx, db)
	if err != nil || s.Standing != Current {
		return Audit{}, err // the objects of another version are unknown to this binary
	}
	made := b.objects()
	var kinds, names []string
	var numbers []int
	for _, key := range slices.SortedFunc(maps.Keys(made), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		kinds, names, numbers = append(kinds, key[0]), append(names, key[1]), append(numbers, made[key])
	}
	var a Audit
	if err := db.QueryRow(ctx, auditQuery, pgx.QueryExecModeExec, kinds, names, numbers).Scan(&a.Missing, &a.Unexpected); err != nil {
		return Audit{}, fmt.Errorf("compare the objects of schema posthorn: %w", err)
	}
	return a, nil
}
