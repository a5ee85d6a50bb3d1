// Package stdsql makes a transaction of database/sql usable where one of pgx is expected,
// with any driver for Postgres.
package stdsql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Conn runs SQL through database/sql: a *sql.Tx, *sql.DB or *sql.Conn.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// DB implements the methods of a pool of pgx with database/sql. Drivers differ in the Go
// types that they accept as arguments, so most arguments are passed as text, which
// Postgres converts to the types in the statement.
type DB struct{ Conn Conn }

// Exec runs a statement that returns no rows.
func (db DB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	plain, err := plainArgs(args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	result, err := db.Conn.ExecContext(ctx, sql, plain...)
	if err != nil {
		return pgconn.CommandTag{}, coded(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return pgconn.CommandTag{}, coded(err)
	}
	return pgconn.NewCommandTag(fmt.Sprintf("SELECT %d", n)), nil
}

// Query runs a statement that returns rows.
func (db DB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	plain, err := plainArgs(args)
	if err != nil {
		return nil, err
	}
	rows, err := db.Conn.QueryContext(ctx, sql, plain...)
	if err != nil {
		return nil, coded(err)
	}
	return &resultRows{rows: rows}, nil
}

// QueryRow runs a statement that returns one row.
func (db DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := db.Query(ctx, sql, args...)
	return resultRow{rows, err}
}

// plainArgs converts arguments into types that every driver accepts.
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

// plainArg depends only on the kind of an argument, so new statements need no change
// here.
func plainArg(arg any) (any, error) {
	switch arg := arg.(type) {
	case nil, time.Time:
		return arg, nil
	case time.Duration: // its kind is int64, which Postgres would read as seconds
		return strconv.FormatInt(arg.Microseconds(), 10) + " microseconds", nil
	case json.RawMessage:
		if arg == nil {
			return nil, nil
		}
		return string(arg), nil
	case []byte:
		return arg, nil
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return plainArg(v.Elem().Interface())
	case reflect.Slice:
		if v.IsNil() {
			return nil, nil
		}
		return arrayOf(v)
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Float32, reflect.Float64:
		return v.Float(), nil
	}
	return nil, fmt.Errorf("arguments of type %T are not supported through database/sql", arg)
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// arrayOf returns a slice in the text form of an array: {"a",NULL}.
func arrayOf(values reflect.Value) (any, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i := range values.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := plainArg(values.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		switch value := value.(type) {
		case nil:
			b.WriteString("NULL")
			continue
		case []byte:
			return nil, fmt.Errorf("arguments of type %s are not supported through database/sql", values.Type())
		case time.Time:
			fmt.Fprintf(&b, `"%s"`, value.UTC().Format("2006-01-02 15:04:05.999999Z07:00"))
		case string:
			b.WriteByte('"')
			_, _ = arrayEscapes.WriteString(&b, value) // a strings.Builder returns no error
			b.WriteByte('"')
		default:
			fmt.Fprint(&b, value)
		}
	}
	b.WriteByte('}')
	return b.String(), nil
}

// coded wraps an error of another driver so that its SQLSTATE is that of a pgconn.PgError.
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
	return &codedError{err, &pgconn.PgError{Code: state.SQLState(), Message: err.Error()}}
}

type codedError struct {
	err  error
	code *pgconn.PgError
}

func (e *codedError) Error() string   { return e.err.Error() }
func (e *codedError) Unwrap() []error { return []error{e.err, e.code} }

// resultRow is the first row of a result.
type resultRow struct {
	rows pgx.Rows
	err  error
}

func (r resultRow) Scan(dest ...any) error {
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

// resultRows implements pgx.Rows with database/sql. Values that database/sql does not
// provide, such as raw bytes, are nil.
type resultRows struct {
	rows *sql.Rows
	err  error
	n    int64
}

func (r *resultRows) Close() {
	if err := r.rows.Close(); err != nil && r.err == nil {
		r.err = coded(err)
	}
}

func (r *resultRows) Err() error {
	if err := r.rows.Err(); err != nil {
		return coded(err)
	}
	return r.err
}

func (r *resultRows) Next() bool {
	if !r.rows.Next() {
		r.Close()
		return false
	}
	r.n++
	return true
}

func (r *resultRows) Scan(dest ...any) error {
	err := r.rows.Scan(dest...)
	if err != nil {
		r.err = err
		r.Close()
	}
	return err
}

func (r *resultRows) Values() ([]any, error) {
	values := make([]any, len(r.FieldDescriptions()))
	dest := make([]any, len(values))
	for i := range values {
		dest[i] = &values[i]
	}
	return values, r.Scan(dest...)
}

func (r *resultRows) FieldDescriptions() []pgconn.FieldDescription {
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

func (r *resultRows) CommandTag() pgconn.CommandTag {
	return pgconn.NewCommandTag(fmt.Sprintf("SELECT %d", r.n))
}

func (r *resultRows) RawValues() [][]byte  { return nil }
func (r *resultRows) Conn() *pgx.Conn      { return nil }
func (r *resultRows) TypeMap() *pgtype.Map { return nil }
