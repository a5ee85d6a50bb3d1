package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// kind is a kind of things that have names, such as groups.
type kind[T any] struct {
	name  string
	query string // its parameters are the namespace, a name, or null for all of them, and hidden streams
	hint  string // if there is none of a name
}

// all returns all things of the kind in the namespace.
func (k kind[T]) all(ctx context.Context, a *Admin) ([]T, error) {
	return rows[T](ctx, a.db, "list "+k.name+"s", k.query, a.namespace, nil, list(a.hidden))
}

// named returns the thing of the kind that has a name.
func (k kind[T]) named(ctx context.Context, a *Admin, name string) (T, error) {
	found, err := rows[T](ctx, a.db, "show "+k.name, k.query, a.namespace, name, list(a.hidden))
	return only(a, found, err, k.name, name, k.hint)
}

// only returns the one row that there must be. Kind and name say which thing is missing
// otherwise.
func only[T any](a *Admin, found []T, err error, kind, name, hint string) (T, error) {
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("show %s: %w", kind, pg.NotFound(fmt.Sprintf("%s '%s' does not exist in namespace %s", kind, name, a.namespace), hint))
	}
	if err != nil {
		var none T
		return none, err
	}
	return found[0], nil
}

const keptByPrograms = "It exists once a program that has it has run; look for it in another namespace."

// rows runs a statement and puts each row into a struct by the names of its columns.
// The name of a field's column is that of its tag db, else that of its tag json; db:"-"
// leaves a field out. A field whose column is null keeps its zero value. Each field
// needs a column; columns without a field are ignored.
func rows[T any](ctx context.Context, db DB, verb, sql string, args ...any) ([]T, error) {
	return pg.Collect(ctx, db, verb, scanByName[T], sql, args...)
}

var rawJSON = reflect.TypeFor[json.RawMessage]()

func scanByName[T any](row pgx.CollectableRow) (T, error) {
	var value T
	fields := columnFields(reflect.TypeFor[T]())
	columns := row.FieldDescriptions()
	into, from := make([]any, len(columns)), make([]reflect.Value, len(columns))
	for i, column := range columns {
		if field, ok := fields[column.Name]; ok {
			nullable := reflect.PointerTo(field.Type)
			if field.Type == rawJSON { // pgx would decode the document null to nil
				nullable = reflect.TypeFor[[]byte]()
			}
			from[i] = reflect.New(nullable)
			into[i] = from[i].Interface()
		}
	}
	if err := row.Scan(into...); err != nil {
		return value, err
	}
	for i, column := range columns {
		field, ok := fields[column.Name]
		if ok && !from[i].Elem().IsNil() {
			found := from[i].Elem()
			if found.Kind() == reflect.Pointer {
				found = found.Elem()
			}
			reflect.ValueOf(&value).Elem().FieldByIndex(field.Index).Set(found)
		}
		delete(fields, column.Name)
	}
	for name := range fields {
		return value, fmt.Errorf("the statement has no column %s for %T", name, value)
	}
	return value, nil
}

// columnFields returns the fields of a struct by the names of their columns.
func columnFields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) {
		name, given := field.Tag.Lookup("db")
		if !given {
			name, _, _ = strings.Cut(field.Tag.Get("json"), ",")
		}
		if name != "" && name != "-" && field.IsExported() {
			fields[name] = field
		}
	}
	return fields
}

// list is never null in SQL.
func list(texts []string) []string { return append([]string{}, texts...) }
