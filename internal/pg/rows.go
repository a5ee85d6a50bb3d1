package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Rows runs a statement and puts each row into a struct by the names of its
// columns. The name of a field's column is that of its tag db, else that of its tag
// json; db:"-" leaves a field out. A field whose column is null keeps its zero value.
// Each field needs a column; columns without a field are ignored.
func Rows[T any](ctx context.Context, db DB, verb, sql string, args ...any) ([]T, error) {
	return Collect(ctx, db, verb, scanByName[T], sql, args...)
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

// columnFields are the fields of a struct by their columns.
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
