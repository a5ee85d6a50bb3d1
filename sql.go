package posthorn

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// SQLConn is what database/sql offers: *sql.Tx, *sql.DB and *sql.Conn have it.
type SQLConn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// SQL lets programs that use database/sql publish in their transactions, with
// any driver for Postgres:
//
//	ph.Publish(ctx, posthorn.SQL(tx), posthorn.Message{Type: "order.placed"})
//
// It is as safe for use by several goroutines as what it is made from.
func SQL(conn SQLConn) DB { return sqlDB{conn} }

// sqlDB is what pgx offers, made from database/sql. Drivers differ in which Go
// types they take, so they get text, which Postgres reads as what each
// statement says that it is.
type sqlDB struct{ conn SQLConn }

func (db sqlDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	plain, err := plainArgs(args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	result, err := db.conn.ExecContext(ctx, sql, plain...)
	if err != nil {
		return pgconn.CommandTag{}, coded(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return pgconn.CommandTag{}, coded(err)
	}
	return pgconn.NewCommandTag(fmt.Sprintf("SELECT %d", n)), nil
}

func (db sqlDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	rows, err := db.conn.QueryContext(ctx, sql, plain...)
	if err != nil {
		return nil, coded(err)
	}
	return &sqlRows{rows: rows}, nil
}

func (db sqlDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := db.Query(ctx, sql, args...)
	return sqlRow{rows, err}
}

// plainArgs turns arguments into what every driver takes.
func plainArgs(args []any) ([]any, error) {
	plain := make([]any, len(args))
	for i, arg := range args {
		var err error
		if plain[i], err = plainArg(arg); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	return plain, nil
}

func plainArg(arg any) (any, error) {
	switch arg := arg.(type) {
	case nil, string, bool, int, int32, int64, float64, time.Time:
		return arg, nil
	case *string:
		return orNull(arg), nil
	case *time.Time:
		return orNull(arg), nil
	case json.RawMessage:
		return jsonText(arg), nil
	case []string:
		return arrayOf(arg, func(s string) any { return s }), nil
	case []*string:
		return arrayOf(arg, orNull[string]), nil
	case []json.RawMessage:
		return arrayOf(arg, jsonText), nil
	}
	return nil, fmt.Errorf("a %T does not go through database/sql", arg)
}

func orNull[T any](value *T) any {
	if value == nil {
		return nil
	}
	return *value
}

func jsonText(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// arrayOf writes values as Postgres reads an array: {"a",NULL}. Each is a string
// or nil.
func arrayOf[T any](values []T, text func(T) any) any {
	if values == nil {
		return nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, value := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		s, ok := text(value).(string)
		if !ok {
			b.WriteString("NULL")
			continue
		}
		b.WriteByte('"')
		_, _ = arrayEscapes.WriteString(&b, s) // a builder takes everything
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// coded makes the SQLSTATE of another driver's error known.
func coded(err error) error {
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return err
	}
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return err
	}
	return &sqlError{err, &pgconn.PgError{Code: state.SQLState(), Message: err.Error()}}
}

type sqlError struct {
	err  error
	code *pgconn.PgError
}

func (e *sqlError) Error() string   { return e.err.Error() }
func (e *sqlError) Unwrap() []error { return []error{e.err, e.code} }

// sqlRow is the first of some rows.
type sqlRow struct {
	rows pgx.Rows
	err  error
}

func (r sqlRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// sqlRows are rows whose values the driver scans. What database/sql does not
// tell, such as their raw bytes, they lack.
type sqlRows struct {
	rows *sql.Rows
	err  error
	n    int64
}

func (r *sqlRows) Close() {
	if err := r.rows.Close(); err != nil && r.err == nil {
		r.err = coded(err)
	}
}

func (r *sqlRows) Err() error {
	if err := r.rows.Err(); err != nil {
		return coded(err)
	}
	return r.err
}

func (r *sqlRows) Next() bool {
	if !r.rows.Next() {
		r.Close()
		return false
	}
	r.n++
	return true
}

func (r *sqlRows) Scan(dest ...any) error {
	err := r.rows.Scan(dest...)
	if err != nil {
		r.err = err
		r.Close()
	}
	return err
}

func (r *sqlRows) Values() ([]any, error) {
	values := make([]any, len(r.FieldDescriptions()))
	dest := make([]any, len(values))
	for i := range values {
		dest[i] = &values[i]
	}
	return values, r.Scan(dest...)
}

func (r *sqlRows) FieldDescriptions() []pgconn.FieldDescription {
	names, err := r.rows.Columns()
	if err != nil {
		return nil
	}
	fields := make([]pgconn.FieldDescription, len(names))
	for i, name := range names {
		fields[i].Name = name
	}
	return fields
}

func (r *sqlRows) CommandTag() pgconn.CommandTag {
	return pgconn.NewCommandTag(fmt.Sprintf("SELECT %d", r.n))
}

func (r *sqlRows) RawValues() [][]byte  { return nil }
func (r *sqlRows) Conn() *pgx.Conn      { return nil }
func (r *sqlRows) TypeMap() *pgtype.Map { return nil }
