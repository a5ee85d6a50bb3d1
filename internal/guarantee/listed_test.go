package guarantee

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
)

// unlisted are the functions and tables that the list of calls leaves out, by the reason.
var unlisted = map[string]string{
	"a part of other functions and of views": `as_jsonb check_pattern check_push check_pushed_table drop_push_trigger explain_job filtered_events
		has_few_pending_jobs has_long_number has_work is_alive is_name job_status listed_events make_push_trigger matches_by_parts named_streams oldest_unread read_streams owed_to_webhook
		pending publish_changes publish_with_care push_settings readable recent_jobs subscribe_with_filter subscribe_with_sql tag_room to_json
		unacknowledged unapplied`,
	"a part of doctor": `blocking_jobs command_line counted due_jobs due_since examine examine_bloat examine_cluster examine_failed_jobs examine_failovers failover_in_words fair_due_since examine_groups examine_imports
		examine_jobs examine_partitions examine_projections examine_roles examine_schedules examine_sealing examine_settings examine_subscriptions
		examine_transactions examine_upkeep examine_webhooks examine_writers finding_filter findings kinds_of_findings first_ready_jobs first_untaken_jobs in_words lost_jobs neglected_tags silent_workers slow_jobs some_jobs usually seen_error shell_word unseen_things untaken_jobs worked_tags`,
	"a part of outbox_event, which shows the whole log":                "relayed_row stream_relays unrelayed_ranges",
	"moves the whole log, or needs an empty one":                       "begin_restore cover_times end_restore rebase restore_events",
	"advice to people, the type of an event, or a part of a migration": "config event grant_role lock_class migrations",
}

// recorder notes the statements that a call sends.
type recorder struct {
	*pgx.Conn
	sent *strings.Builder
}

func (r recorder) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.sent.WriteString(sql)
	return r.Conn.Query(ctx, sql, args...)
}

func (r recorder) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r.sent.WriteString(sql)
	return r.Conn.QueryRow(ctx, sql, args...)
}

// Each function that a role may call, and each function, table and view that a statement of
// our programs names, is in the list of calls whose reads are compared.
func TestEachCallIsListed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.crowd()
	var listed strings.Builder
	for _, c := range everyday {
		listed.WriteString(c.before + strings.Join(c.statements, ";"))
	}
	db := recorder{s.conn, &listed}
	for _, calls := range programs {
		for name, call := range calls {
			if err := call(caller{t.Context(), admin.New(db, "default"), db}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	tried := named(listed.String())
	granted := column[string](s, `
		select distinct p.proname::text from pg_proc p, unnest('{posthorn_publisher,posthorn_consumer,posthorn_admin}'::text[]) r
		where p.pronamespace = 'posthorn'::regnamespace and has_function_privilege(r, p.oid, 'execute')`)
	sent := named(statementsOfPrograms(t))
	sent = slices.DeleteFunc(sent, func(name string) bool {
		return !value[bool](s, "select exists (select from pg_proc where pronamespace = 'posthorn'::regnamespace and proname = $1) or to_regclass('posthorn.' || $1) is not null", name)
	})
	if len(granted) < 200 || len(sent) < 200 {
		t.Fatalf("found only %d granted functions, and %d names in statements of programs", len(granted), len(sent))
	}
	reasons := map[string]string{}
	for reason, names := range unlisted {
		for _, name := range strings.Fields(names) {
			reasons[name] = reason
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(granted, sent)))) {
		isListed := slices.Contains(tried, name)
		if reason, ok := reasons[name]; ok && isListed {
			t.Errorf("posthorn.%s is in the list, and left out of it as %s", name, reason)
		} else if !ok && !isListed {
			t.Errorf("no call in the list names posthorn.%s", name)
		}
	}
}

var posthornName = regexp.MustCompile(`posthorn\.([a-z_]+)`)

// named returns the names in the schema posthorn that a text has.
func named(text string) []string {
	var names []string
	for _, match := range posthornName.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// statementsOfPrograms returns the strings of all Go files that are not for tests.
func statementsOfPrograms(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && slices.Contains([]string{".git", ".cache", "bench", "posthorntest", "node_modules"}, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || isTestHelper(path) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				all.WriteString(literal.Value)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
