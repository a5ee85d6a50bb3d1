package schema

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed bootstrap.sql
var bootstrap string

// Step is a piece of SQL that is run as a whole: usually a file and the statement
// that records it.
type Step struct {
	Name string `json:"name"`
	SQL  string `json:"sql"`
}

// pending returns the files that upgrade s to the schema of the bundle.
func (b bundle) pending(s State) []Step {
	if s.Standing != Absent && s.Standing != Behind {
		return nil
	}
	var steps []Step
	if s.Standing == Absent {
		steps = append(steps, Step{"bootstrap.sql", bootstrap})
	}
	for _, m := range b.migrations {
		if m.version > s.Database.Migration {
			steps = append(steps, m.recorded())
		}
	}
	return append(steps, b.functions...)
}

// steps returns the pending files and the row that records the upgrade.
func (b bundle) steps(s State) []Step {
	steps := b.pending(s)
	if len(steps) == 0 {
		return nil
	}
	return append(steps, b.record())
}

// recorded appends the record after the file's SQL, so that error positions match the
// lines of the file.
func (m migration) recorded() Step {
	return Step{m.Name, fmt.Sprintf("%s\ninsert into posthorn.migrations (version, name) values (%d, %s);\n",
		strings.TrimRight(m.SQL, "\n"), m.version, quote(m.name))}
}

func (b bundle) record() Step {
	return Step{"schema version", fmt.Sprintf(`delete from posthorn.schema_version;
insert into posthorn.schema_version (version, revision, functions_hash, compatible_from, history, applied_by)
values (%d, %d, %s, %d, %s, %s);
`, b.version.Migration, b.version.Revision, quote(b.version.Functions), b.compatibleFrom,
		quote("{"+strings.Join(b.history(), ",")+"}"), quote(program()))}
}

func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// program is the version of Posthorn in the running binary, which may be the command
// or a program that uses the library.
func program() string {
	const module = "github.com/posthorn/posthorn"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	version := ""
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			version = m.Version
		}
	}
	if version == "" || version == "(devel)" {
		return "devel"
	}
	return version
}

// run uses the simple protocol below pgx: only that accepts several statements at
// once, and it leaves no prepared statement in a pooler's connection.
func (s Step) run(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, s.SQL).ReadAll()
	if err == nil {
		return nil
	}
	done := 0
	for _, r := range results {
		if r.Err == nil {
			done++
		}
	}
	return s.locate(err, done)
}

// locate adds the place of an error: the line if the server reports a position, and
// else the number of the statement.
func (s Step) locate(err error, statementsDone int) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	if pgErr.Position > 0 {
		return fmt.Errorf("%s:%d: %w", s.Name, line(s.SQL, int(pgErr.Position)), err)
	}
	return fmt.Errorf("%s: statement %d: %w", s.Name, statementsDone+1, err)
}

// line returns the line of a position in characters, counted from 1.
func line(sql string, position int) int {
	n, lines := 0, 1
	for _, r := range sql {
		if n++; n >= position {
			break
		}
		if r == '\n' {
			lines++
		}
	}
	return lines
}
