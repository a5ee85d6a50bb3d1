package op_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/posthorntest"
)

// unlimited has the lists and objects of inputs that have no largest number of elements, and
// the reasons.
var unlimited = map[string]string{
	"filter":   "each of its lists has a limit: see TestFiltersAreLimited",
	"params":   "one document, which an administrator gives to a condition of his own; the size of the request limits it",
	"metadata": "one document, which is stored as it is; the size of the request limits it",
	"truncate": "tables of the caller's own; no token can send it, as there is no route",
}

var document = reflect.TypeFor[json.RawMessage]()

func isList(f op.Field) bool {
	k := f.Value.Kind()
	return f.Value.Type() != document && (k == reflect.Slice || k == reflect.Map)
}

// filled is an input of an operation that would be done, if a field has few elements: that field
// has n.
func filled(o op.Any, list string, n int) any {
	in := o.New()
	for _, f := range op.Fields(in) {
		switch {
		case f.Name == list:
			f.Value.Set(listOf(f.Value.Type(), f.Enum, n))
		case f.Name == "url":
			f.Value.SetString("https://shop.example")
		case isList(f) && f.Needed:
			f.Value.Set(listOf(f.Value.Type(), f.Enum, 1))
		case f.Value.Kind() == reflect.String && (f.Path || f.Needed):
			f.Value.SetString(append(f.Enum, "x")[0])
		}
	}
	return in
}

func listOf(t reflect.Type, enum []string, n int) reflect.Value {
	if t.Kind() == reflect.Map {
		all := reflect.MakeMap(t)
		for i := range n {
			all.SetMapIndex(reflect.ValueOf(fmt.Sprint("x-", i)), reflect.ValueOf("a"))
		}
		return all
	}
	all := reflect.MakeSlice(t, n, n)
	for i := range n {
		if all.Index(i).Kind() == reflect.Int64 {
			all.Index(i).SetInt(int64(i + 1))
		} else {
			all.Index(i).SetString(append(slices.Clone(enum), fmt.Sprint(i, " minutes"))[0])
		}
	}
	return all
}

func limitedWorld(t *testing.T) *admin.Admin {
	t.Helper()
	ph := posthorntest.Open(t, posthorn.Config{})
	a := ph.Admin()
	_, err := a.CreateWebhook(t.Context(), "x", admin.WebhookSettings{URL: "https://shop.example"})
	if err == nil {
		_, err = ph.Pool().Exec(t.Context(), "select posthorn.enqueue('default', 'a', tags => '{x}')")
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Each list that an operation takes has a limit, which the error names when a list is longer;
// or there is a reason why it has none. The limit is that of the SQL function, so it holds for
// all faces.
func TestListsAreLimited(t *testing.T) {
	t.Parallel()
	a, used, limited := limitedWorld(t), map[string]bool{}, 0
	for _, o := range op.All() {
		for _, f := range op.Fields(o.New()) {
			what := o.Describe().Name + ": " + f.Name
			switch reason := unlimited[f.Name]; {
			case !isList(f):
			case reason != "":
				used[f.Name] = true
			case f.Longest == 0:
				t.Errorf("%s has no limit, and no reason for that", what)
			default:
				limited++
				_, err := o.Run(t.Context(), a, filled(o, f.Name, int(f.Longest)+1))
				if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("up to %d", f.Longest)) {
					t.Errorf("%s of %d elements: %v", what, f.Longest+1, err)
				}
			}
		}
	}
	if limited < 15 || len(used) != len(unlimited) {
		t.Errorf("%d lists are limited; reasons are given for %v", limited, used)
	}
}

// The lists of a filter, and its payload, have limits wherever there is a filter: a pattern is
// compared with each event of a batch.
func TestFiltersAreLimited(t *testing.T) {
	t.Parallel()
	a := limitedWorld(t)
	ctx := t.Context()
	made := 0
	put := map[string]func(admin.Subscription) error{
		"subscription": func(s admin.Subscription) error { _, err := a.Subscribe(ctx, "g", "x", s); return err },
		"new webhook": func(s admin.Subscription) error {
			made++
			_, err := a.CreateWebhook(ctx, fmt.Sprint("y", made), admin.WebhookSettings{URL: "https://shop.example", Filter: &s})
			return err
		},
		"webhook": func(s admin.Subscription) error {
			return a.ChangeWebhook(ctx, "x", admin.WebhookSettings{Filter: &s})
		},
	}
	for name, do := range put {
		for field, most := range map[string]int{"type": 100, "stream": 100, "key": 1000, "tags_any": 1000, "tags_all": 1000} {
			for _, n := range []int{most, most + 1} {
				filter, err := json.Marshal(map[string]any{field: slices.Repeat([]string{"a.*"}, n)})
				if err != nil {
					t.Fatal(err)
				}
				err = do(admin.Subscription{Filter: filter})
				if n > most && (!errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf(`"%s" of a filter has %d elements, and may have up to %d`, field, n, most))) ||
					n == most && err != nil {
					t.Errorf("%s: %d elements of %s: %v", name, n, field, err)
				}
			}
		}
		err := do(admin.Subscription{Filter: json.RawMessage(`{"payload": {"a": "` + strings.Repeat("x", 1<<16) + `"}}`)})
		if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "up to 65536") {
			t.Errorf("%s: a large payload: %v", name, err)
		}
	}
	long, _ := json.Marshal(map[string]any{"type": "a." + strings.Repeat("x", 254)})
	if err := put["subscription"](admin.Subscription{Filter: long}); !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "1 to 255 bytes") {
		t.Errorf("a long pattern: %v", err)
	}
}

// A text with the zero character is refused in plain words by each operation, in each of its
// texts. Faces that read a query or a form refuse it before; an assistant reaches the operation.
func TestZeroCharactersAreRefusedInPlainWords(t *testing.T) {
	t.Parallel()
	a := limitedWorld(t)
	refused := 0
	for _, o := range op.All() {
		for i, f := range op.Fields(o.New()) {
			in := filled(o, "", 0)
			field := op.Fields(in)[i]
			if f.Enum != nil || !setText(field, "a\x00b") {
				continue
			}
			err := run(t.Context(), o, a, in)
			if err != nil && (strings.Contains(err.Error(), "byte sequence") || strings.Contains(err.Error(), "Unicode")) {
				t.Errorf("%s: %s: %v", o.Describe().Name, f.Name, err)
			} else if err != nil && strings.Contains(err.Error(), "Postgres cannot hold") {
				refused++
			}
		}
	}
	if refused < 30 {
		t.Errorf("%d texts were refused", refused)
	}
}

// run does an operation as the assistant's face does it, with its question.
func run(ctx context.Context, o op.Any, a *admin.Admin, in any) error {
	if o.Asks() {
		if _, err := o.Question(ctx, a, in); err != nil {
			return err
		}
	}
	_, err := o.Run(ctx, a, in)
	return err
}

func setText(f op.Field, text string) bool {
	switch p := f.Value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *[]string:
		*p = []string{text}
	case *map[string]string:
		*p = map[string]string{text: text}
	default:
		return false
	}
	return true
}
