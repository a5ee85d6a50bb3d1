package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is what matters of a server's state and configuration.
type Server struct {
	Number      int    // such as 180004
	Version     string // the same for people
	InRecovery  bool   // a standby: it takes no writes
	Connections int    // open now, to all databases
	SeesOthers  bool   // this role is shown what other roles' sessions do
	Settings    map[string]string
}

// Settings that [ServerState] reports, as they are for new sessions.
var watchedSettings = []string{"fsync", "full_page_writes", "synchronous_commit", "autovacuum", "max_connections", "plan_cache_mode"}

// ServerState reads the server's state and configuration.
func ServerState(ctx context.Context, db DB) (Server, error) {
	s := Server{Settings: map[string]string{}}
	err := db.QueryRow(ctx, `
		select current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(),
			(select count(*) from pg_stat_activity where backend_type = 'client backend')::int,
			pg_has_role('pg_read_all_stats', 'usage')`).
		Scan(&s.Number, &s.Version, &s.InRecovery, &s.Connections, &s.SeesOthers)
	if err != nil {
		return Server{}, translate("read the server's state", err)
	}
	type setting struct{ Name, Value string }
	settings, err := list(ctx, db, "read settings", pgx.RowToStructByPos[setting],
		"select name, reset_val from pg_settings where name = any ($1::text[])", watchedSettings)
	for _, setting := range settings {
		s.Settings[setting.Name] = setting.Value
	}
	return s, err
}

// Role is one of the roles that programs are meant to use.
type Role struct {
	Name    string
	Exists  bool
	Granted bool // it may do what it is for
}

// Roles returns the three roles, and whether they are as they should be.
func Roles(ctx context.Context, db DB) ([]Role, error) {
	return list(ctx, db, "read roles", pgx.RowToStructByPos[Role], `
		select w.name, r.oid is not null, coalesce(
			has_schema_privilege(r.oid, 'posthorn', 'usage')
			and (select count(*) > 0 and bool_and(has_function_privilege(r.oid, p.oid, 'execute'))
				from pg_proc p
				where p.pronamespace = 'posthorn'::regnamespace and p.proname = any (w.functions)), false)
		from (values
			('posthorn_publisher', array['publish', 'publish_many', 'publish_batch']),
			('posthorn_consumer', array['claim', 'take', 'lease_events', 'settle', 'extend', 'release']),
			('posthorn_admin', array['define_group', 'seek', 'redrive', 'purge', 'tend', 'rebase'])) w (name, functions)
		left join pg_roles r on r.rolname = w.name
		order by w.name`)
}

// Rights are whether the role of the session may read all of Posthorn's tables.
type Rights struct {
	Role      string
	Reads     bool // also when there is no schema yet
	AdminRole bool // the role posthorn_admin exists
}

// OwnRights reads the rights of the session's role. It needs none itself.
func OwnRights(ctx context.Context, db DB) (Rights, error) {
	var r Rights
	err := db.QueryRow(ctx, `
		select current_user::text, coalesce(bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')), true),
			exists (select from pg_roles where rolname = 'posthorn_admin')
		from pg_namespace n
		join pg_class c on c.relnamespace = n.oid
		where n.nspname = 'posthorn' and c.relname in ('config', 'cursors', 'schema_version')`).Scan(&r.Role, &r.Reads, &r.AdminRole)
	return r, translate("read the rights of this role", err)
}

// Transaction is one that is open.
type Transaction struct {
	PID         *int32 // nil: a prepared one
	Age         time.Duration
	Application string
}

// OldestTransaction returns the oldest open transaction of the database; none if
// there is none older than a second.
func OldestTransaction(ctx context.Context, db DB) ([]Transaction, error) {
	return list(ctx, db, "read open transactions", func(row pgx.CollectableRow) (Transaction, error) {
		var t Transaction
		return t, scanPeriods(row, []any{&t.PID, &t.Application}, &t.Age)
	}, `
		select pid, coalesce(application_name, ''), extract(epoch from clock_timestamp() - since)::float8
		from posthorn.oldest_transaction`)
}

// Table is how much of a table is rows, and how much is their remains.
type Table struct {
	Name       string
	Live, Dead int64 // estimates
	Bytes      int64
}

// BusyTables returns the tables whose rows come and go.
func BusyTables(ctx context.Context, db DB) ([]Table, error) {
	return list(ctx, db, "read table statistics", pgx.RowToStructByPos[Table], `
		select s.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(s.relid)
		from pg_stat_user_tables s
		where s.schemaname = 'posthorn' and s.relname in ('cursors', 'leases', 'retries', 'delayed', 'dedup_keys', 'ticks')
		order by s.relname`)
}

// Upkeep is what is known about the care that the log is given.
type Upkeep struct {
	MaintainedAgo time.Duration // since when nobody has looked after the partitions; negative: nobody ever has
	CoveredFor    time.Duration // how far ahead there are partitions; negative: they have run out
	Interval      time.Duration // the length of a partition
	DefaultEvents int           // in the partition of last resort, counted to 10,000
	Overdue       time.Duration // how long the first delayed event has been due
}

// UpkeepState reads what is known about the care that the log is given.
func UpkeepState(ctx context.Context, db DB) (Upkeep, error) {
	var u Upkeep
	err := scanPeriods(db.QueryRow(ctx, `
		select (select count(*) from (select from posthorn.events_default limit 10000) e)::int,
			coalesce(extract(epoch from posthorn.now() - c.maintained_at), -1)::float8,
			coalesce(extract(epoch from (select max(p.upto) from posthorn.partitions p) - posthorn.now()), -1)::float8,
			extract(epoch from posthorn.setting('partition_interval')::interval)::float8,
			greatest(extract(epoch from posthorn.now() - (
				select d.deliver_at from posthorn.delayed d
				where not exists (select from posthorn.held_back h where h.id = d.id) order by d.deliver_at limit 1)), 0)::float8
		from posthorn.cluster c`),
		[]any{&u.DefaultEvents}, &u.MaintainedAgo, &u.CoveredFor, &u.Interval, &u.Overdue)
	return u, translate("read the state of upkeep", err)
}

// scanPeriods scans values, and after them periods given in seconds.
func scanPeriods(row pgx.Row, values []any, periods ...*time.Duration) error {
	seconds := make([]float64, len(periods))
	for i := range seconds {
		values = append(values, &seconds[i])
	}
	if err := row.Scan(values...); err != nil {
		return err
	}
	for i, s := range seconds {
		*periods[i] = time.Duration(s * float64(time.Second))
	}
	return nil
}

// Backlog is a group that has work.
type Backlog struct {
	Namespace string
	Group     string
	Events    int64         // not handed out yet; an estimate beyond 10,000
	Idle      time.Duration // since the last claim that moved the group
	Oldest    time.Duration // the age of the oldest of the events
	Leased    bool          // a worker has a lease of it now
}

// Backlogs returns the groups that have work and are not paused, those that stand
// still the longest first. Relays and archives are not among them.
func Backlogs(ctx context.Context, db DB) ([]Backlog, error) {
	return list(ctx, db, "look for groups that have work", func(row pgx.CollectableRow) (Backlog, error) {
		var b Backlog
		return b, scanPeriods(row, []any{&b.Namespace, &b.Group, &b.Events, &b.Leased}, &b.Idle, &b.Oldest)
	}, `
		select n.namespace, g.name, p.events,
			exists (select from posthorn.leases l where l.group_id = g.id and l.until > posthorn.now()),
			extract(epoch from posthorn.now() - c.at)::float8, coalesce(extract(epoch from posthorn.now() - p.oldest), 0)::float8
		from posthorn.groups g
		join posthorn.namespaces n on n.id = g.namespace_id
		cross join lateral (select x.at from posthorn.cursors x where x.group_id = g.id order by x.n desc limit 1) c
		cross join lateral posthorn.pending(g) p
		where not g.paused and posthorn.has_work(g)
			and not exists (select from posthorn.relays r where r.group_id = g.id)
			and not exists (select from posthorn.archives a where a.group_no = g.id)
		order by c.at`)
}

// Writer is a relay or an archive.
type Writer struct {
	Namespace string
	Name      string
	Events    int64         // not written yet; an estimate beyond 10,000
	Behind    time.Duration // the age of the oldest of the events
	Running   bool          // some process writes, or did within the last minute
	Error     string        // the last one, until writing succeeds
}

// Relays returns the relays that are not paused, of all namespaces.
func Relays(ctx context.Context, db DB) ([]Writer, error) {
	return list(ctx, db, "read relays", writer, `
		select s.namespace, s.relay, s.lag_events, s.owner is not null,
			coalesce((select r.error from posthorn.retries r where r.group_id = g.id and r.error is not null order by r.failed_at desc limit 1), ''),
			s.lag_seconds::float8
		from posthorn.relay_status s
		join posthorn.namespaces n on n.namespace = s.namespace
		join posthorn.groups g on g.namespace_id = n.id and g.name = s.relay
		where not s.paused
		order by s.namespace, s.relay`)
}

// Archives returns the archives that are not paused, of all namespaces. Events wait
// for their segment to fill up or to be old enough: that is not counted as behind.
func Archives(ctx context.Context, db DB) ([]Writer, error) {
	return list(ctx, db, "read archives", writer, `
		select s.namespace, s.name, s.lag_events::bigint,
			exists (select from posthorn.archive_streams x where x.archive_id = a.id and x.lease_until > posthorn.now() - interval '1 minute'),
			coalesce(s.error, ''),
			greatest(coalesce(extract(epoch from posthorn.now() - s.lag_since - a.segment_age), 0), 0)::float8
		from posthorn.archive_status s
		join posthorn.namespaces n on n.namespace = s.namespace
		join posthorn.archives a on a.namespace_id = n.id and a.name = s.name
		where not s.paused
		order by s.namespace, s.name`)
}

func writer(row pgx.CollectableRow) (Writer, error) {
	var w Writer
	return w, scanPeriods(row, []any{&w.Namespace, &w.Name, &w.Events, &w.Running, &w.Error}, &w.Behind)
}

// Cluster is whether the log is at home.
type Cluster struct {
	Restored      bool // the log comes from another cluster, so its positions mean nothing
	ClockWentBack bool // by more than an hour, at some time; not known after a restore from an archive
	SequenceCache int64
}

// ClusterState reads whether the log is at home.
func ClusterState(ctx context.Context, db DB) (Cluster, error) {
	var c Cluster
	err := db.QueryRow(ctx, `
		select s.system_identifier <> c.system_identifier,
			c.clock_low is not null and not exists (select from posthorn.archive_restores),
			(select q.seqcache from pg_sequence q where q.seqrelid = 'posthorn.event_id'::regclass)
		from posthorn.cluster c
		cross join pg_control_system() s`).Scan(&c.Restored, &c.ClockWentBack, &c.SequenceCache)
	return c, translate("read the cluster's identity", err)
}

// JobTrouble is jobs of a namespace that nobody seems to care for.
type JobTrouble struct {
	Namespace string
	Tag       string // of jobs that nobody takes; none for those without tags
	Jobs      int64
	For       time.Duration // since the oldest of them was due, or heard of
}

// DueJobs returns how many jobs could be taken now, and since when the oldest of them
// could. Those under a paused tag are left out.
func DueJobs(ctx context.Context, db DB) (n int64, oldest time.Duration, err error) {
	err = scanPeriods(db.QueryRow(ctx, `
		select count(distinct r.job), coalesce(extract(epoch from posthorn.now() - min(r.due_at)), 0)::float8
		from posthorn.ready_jobs r
		where r.due_at <= posthorn.now()
			and not exists (
				select from posthorn.job_limits l where l.namespace_id = r.namespace_id and l.tag = r.tag and l.paused_at is not null)`),
		[]any{&n}, &oldest)
	return n, oldest, translate("count the jobs that are due", err)
}

// UntakenJobs returns tags whose jobs could have been taken for that long, the
// longest first.
func UntakenJobs(ctx context.Context, db DB, atLeast time.Duration) ([]JobTrouble, error) {
	return list(ctx, db, "look for jobs that nobody takes", jobTrouble, `
		select n.namespace, r.tag, count(*), extract(epoch from posthorn.now() - min(r.due_at))::float8
		from posthorn.ready_jobs r
		join posthorn.namespaces n on n.id = r.namespace_id
		where r.due_at < posthorn.now() - $1::text::interval
			and not exists (
				select from posthorn.job_limits l where l.namespace_id = r.namespace_id and l.tag = r.tag and l.paused_at is not null)
		group by n.namespace, r.tag
		order by 4 desc, 1, 2`, period(atLeast))
}

// StalledJobs returns namespaces with jobs whose workers have said nothing for 30
// seconds, the longest first.
func StalledJobs(ctx context.Context, db DB) ([]JobTrouble, error) {
	return list(ctx, db, "look for stalled jobs", jobTrouble, `
		select n.namespace, '', count(*), extract(epoch from posthorn.now() - min(r.seen_at))::float8
		from posthorn.running_jobs r
		join posthorn.namespaces n on n.id = r.namespace_id
		where r.seen_at < posthorn.now() - interval '30 seconds'
		group by n.namespace
		order by 4 desc, 1`)
}

func jobTrouble(row pgx.CollectableRow) (JobTrouble, error) {
	var t JobTrouble
	return t, scanPeriods(row, []any{&t.Namespace, &t.Tag, &t.Jobs}, &t.For)
}

// SealedStream is a stream with keys, or one that is to have them.
type SealedStream struct {
	Namespace, Name string
	Keepers         []string // the names of those that it needs
	ActiveKey       int      // 0: none
	KeyAge          time.Duration
	KeyOverdue      bool
}

// SealedStreams returns the streams that are or were confidential. Keys are
// overdue that much past their age; the age is that of the policy, or a default.
func SealedStreams(ctx context.Context, db DB, age, late time.Duration) ([]SealedStream, error) {
	return list(ctx, db, "read sealed streams", func(row pgx.CollectableRow) (s SealedStream, err error) {
		var seconds float64
		err = row.Scan(&s.Namespace, &s.Name, &s.Keepers, &s.ActiveKey, &seconds, &s.KeyOverdue)
		s.KeyAge = time.Duration(seconds * float64(time.Second))
		return s, err
	}, `
		select n.namespace, x.stream_name, x.keepers, coalesce(k.version, 0),
			coalesce(extract(epoch from posthorn.now() - k.created_at), 0)::float8,
			coalesce(posthorn.now() - k.created_at > coalesce(p.dek_rotation_days * interval '1 day', $1::interval) + $2::interval, false)
		from (
			select y.namespace_id, y.stream_name, array_agg(distinct y.keeper) as keepers
			from (
				select k.namespace_id, k.stream_name, k.keeper from posthorn.stream_keys k where k.key is not null
				union
				select p.namespace_id, p.stream_name, coalesce(p.kms_key_id, '') from posthorn.stream_policies p
				where p.security_level = 'confidential'
			) y
			group by y.namespace_id, y.stream_name
		) x
		join posthorn.namespaces n on n.id = x.namespace_id
		left join posthorn.stream_policies p on p.namespace_id = x.namespace_id and p.stream_name = x.stream_name
		left join posthorn.stream_keys k
			on k.namespace_id = x.namespace_id and k.stream_name = x.stream_name and k.version = p.active_key_version
		order by n.namespace, x.stream_name`, period(age), period(late))
}

// HeldBackEvent is a delayed event in plain text, of a stream that is confidential.
type HeldBackEvent struct {
	ID        int64
	Namespace string
	Stream    string
}

// HeldBack returns delayed events that stay out of the log.
func HeldBack(ctx context.Context, db DB, limit int) ([]HeldBackEvent, error) {
	return list(ctx, db, "read held-back events", pgx.RowToStructByPos[HeldBackEvent],
		"select id, namespace, stream_name from posthorn.held_back order by id limit $1::int", limit)
}
