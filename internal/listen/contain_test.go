package listen_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/posthorntest"
)

// documents has an example of each case that jsonb's @> distinguishes.
var documents = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `1.0`, `10e-1`, `0.1e+1`, `-1`, `100`, `1e2`, `1E2`, `12345678901234567890.1`,
	`12345678901234567890.10`, `0.00012`, `12e-5`, `""`, `"1"`, `"a"`, `"\u0061"`, `"ä"`, `"\u00e4"`, `"\ud83d\ude00"`, `"😀"`, `"<a>"`,
	`[]`, `[[]]`, `{}`, `[{}]`, `[null]`, `[1]`, `[1, 1]`, `[1, 2]`, `[2, 1, 3]`, `[[1]]`, `[[1, 2]]`, `[1, [2]]`, `["a"]`, `["a", 1]`,
	`{"a": 1}`, `{"a": 1.0}`, `{"a": 2}`, `{"a": null}`, `{"a": 1, "b": 2}`, `{"b": 2}`, `{"a": [1]}`, `{"a": [1, 2]}`, `{"a": {}}`,
	`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 2}}`, `[{"a": 1}]`, `[{"a": 1, "b": 2}]`, `[{"a": 1}, {"b": 2}]`, `[[{"a": 1}]]`,
	`{"a": [{"b": 1}]}`, `{"a": [{"b": 1, "c": 2}, 3]}`, `{"a": 1, "a": 2}`, `{"": 1}`, `{"A": 1}`, `[true]`, `[false, true]`,
}

// For every pair of documents, contains returns the result of @>.
func TestContainsAsPostgresDoes(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{}
	for _, have := range documents {
		for _, want := range documents {
			pairs = append(pairs, [2]string{have, want})
		}
	}
	chance := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		have := someDocument(chance, 3)
		pairs = append(pairs, [2]string{have, someDocument(chance, 3)}, [2]string{have, partOf(chance, have)})
	}
	conn, err := pgx.Connect(t.Context(), posthorntest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var haves, wants []string
	for _, pair := range pairs {
		haves, wants = append(haves, pair[0]), append(wants, pair[1])
	}
	rows, _ := conn.Query(t.Context(), `select h::jsonb @> w::jsonb
		from unnest($1::text[], $2::text[]) with ordinality x (h, w, n) order by n`, haves, wants)
	expected, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		t.Fatal(err)
	}
	yes := 0
	for i, pair := range pairs {
		if got, err := listen.Contains(pair[0], pair[1]); err != nil || got != expected[i] {
			t.Errorf("%s @> %s: %v, %v, want %v", pair[0], pair[1], got, err, expected[i])
		}
		if expected[i] {
			yes++
		}
	}
	if yes < len(pairs)/10 || yes > len(pairs)*9/10 {
		t.Errorf("%d of %d are contained: that shows little", yes, len(pairs))
	}
}

// someDocument has few names and values, so that some documents are equal.
func someDocument(chance *rand.Rand, depth int) string {
	switch n := chance.IntN(6); {
	case n < 2 || depth == 0:
		return documents[chance.IntN(26)]
	case n < 4:
		text := ""
		for i := range chance.IntN(4) {
			text += comma(i) + someDocument(chance, depth-1)
		}
		return "[" + text + "]"
	default:
		text := ""
		for i := range chance.IntN(4) {
			text += comma(i) + fmt.Sprintf(`"%c": %s`, 'a'+chance.IntN(3), someDocument(chance, depth-1))
		}
		return "{" + text + "}"
	}
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ", "
}

// partOf returns a document without some of its fields and elements.
func partOf(chance *rand.Rand, text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	part, _ := json.Marshal(lessOf(chance, value))
	return string(part)
}

func lessOf(chance *rand.Rand, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			if value[name] = lessOf(chance, value[name]); chance.IntN(3) == 0 {
				delete(value, name)
			}
		}
	case []any:
		kept := []any{}
		for _, one := range value {
			if chance.IntN(3) > 0 {
				kept = append(kept, lessOf(chance, one))
			}
		}
		chance.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
		return kept
	}
	return value
}
