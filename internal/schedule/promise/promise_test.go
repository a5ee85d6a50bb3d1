package promise

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/schedule"
)

// teller tells a model what happened, a step each, without transactions.
type teller struct {
	model schedule.Model
	now   schedule.Moment
	vars  map[string]schedule.Vars
	world schedule.Vars
}

func tell(rules Rules) *teller {
	return &teller{model: New(rules)(), vars: map[string]schedule.Vars{}, world: schedule.Vars{}}
}

// says is a statement of a session that has returned these rows.
func (h *teller) says(session string, op any, rows ...[]any) *teller {
	return h.ends(session, op, schedule.Outcome{Rows: rows})
}

func (h *teller) ends(session string, op any, o schedule.Outcome) *teller {
	if h.vars[session] == nil {
		h.vars[session] = schedule.Vars{}
	}
	h.now.Step++
	h.now.Clock++
	h.model.Ended(op, &schedule.Call{Outcome: o, Session: session, Vars: h.vars[session], World: h.world, Tx: &schedule.Tx{}, Sent: h.now, Now: h.now})
	return h
}

// sets gives a session a variable, as \gset does.
func (h *teller) sets(session, name, value string) *teller {
	h.vars[session][name] = value
	return h
}

func (h *teller) waits(milliseconds int64) *teller {
	h.now.Clock += milliseconds
	return h
}

func (h *teller) wrong() string {
	h.model.Drained(h.now)
	return strings.Join(h.model.Wrong(), "; ")
}

func publishes(h *teller, id int64, label, key string) *teller {
	return h.says("P", Publish{Label: label, Key: key}, []any{id})
}

func hands(id int64, attempt int32, events ...int64) (rows [][]any) {
	for _, e := range events {
		rows = append(rows, []any{id, attempt, e})
	}
	return rows
}

func jobRow(id int64, attempt int32) []any { return []any{id, attempt} }

// Each broken promise has its number, and what is right has none.
func TestModel(t *testing.T) {
	t.Parallel()
	one := func(rules Rules) *teller { return publishes(tell(rules), 1, "a", "k") }
	queued := func() *teller { return tell(Rules{}).says("E", Enqueue{Label: "J"}, []any{int64(1)}) }
	taken := func() *teller { return queued().says("W1", ClaimJobs{}, jobRow(1, 1)) }
	for name, test := range map[string]struct {
		h    *teller
		want string // the numbers of the promises
	}{
		"settled":            {one(Rules{}).says("W", Claim{}, hands(7, 1, 1)...).says("W", Settle{}), ""},
		"expired":            {one(Rules{}).says("W", Claim{}, hands(7, 1, 1)...).waits(30_000).says("V", Claim{}, hands(7, 2, 1)...).says("V", Settle{}), ""},
		"invented":           {one(Rules{}).says("W", Claim{}, hands(7, 1, 1, 2)...).says("W", Settle{}), "1"},
		"lost":               {publishes(one(Rules{}), 2, "b", "").says("W", Claim{}, hands(7, 1, 1)...).says("W", Settle{}), "2"},
		"with two workers":   {one(Rules{}).says("W", Claim{}, hands(7, 1, 1)...).says("V", Claim{}, hands(8, 1, 1)...).says("V", Settle{}), "3"},
		"settled late":       {one(Rules{}).says("W", Claim{}, hands(7, 1, 1)...).waits(30_000).says("V", Claim{}, hands(7, 2, 1)...).says("W", Settle{}), "4"},
		"effect first":       {publishes(one(Rules{}), 2, "b", "").says("W", Claim{}, hands(7, 1, 2, 1)...).says("W", Settle{}), "3"},
		"key out of order":   {publishes(one(Rules{Ordered: true}), 2, "b", "k").says("W", Claim{}, hands(7, 1, 2)...).says("W", Settle{}).says("W", Claim{}, hands(8, 1, 1)...).says("W", Settle{}), "3"},
		"unexpected error":   {one(Rules{Lossy: true}).ends("W", Claim{}, schedule.Outcome{Err: &pgconn.PgError{Code: "23505"}}), "0"},
		"refused":            {one(Rules{Lossy: true}).ends("W", Settle{}, schedule.Outcome{Err: &pgconn.PgError{Code: "PH003"}}), ""},
		"extended late":      {one(Rules{}).says("W", Claim{}, hands(7, 1, 1)...).waits(30_000).says("V", Claim{}, hands(7, 2, 1)...).says("W", Extend{}).says("V", Settle{}), "4"},
		"one too many":       {publishes(one(Rules{}), 2, "b", "").says("W", Claim{Most: 1}, hands(7, 1, 1, 2)...).says("W", Settle{}), "0"},
		"late leader":        {tell(Rules{}).says("L1", Lead{"1"}, []any{int64(1)}).waits(30_000).says("L2", Lead{"2"}, []any{int64(2)}).sets("L1", "term", "1").says("L1", Led{}), "10"},
		"plain text":         {tell(Rules{}).says("P", Policy{true}).says("A", Publish{Label: "a", Plain: true}, []any{int64(1)}), "11"},
		"read":               {one(Rules{}).says("R", Read{}, []any{int64(1), "c"}), ""},
		"read twice":         {one(Rules{}).says("R", Read{}, []any{int64(1), "c"}).says("R", Read{}, []any{int64(1), "c"}), "2"},
		"never read":         {publishes(one(Rules{}), 2, "b", "").says("R", Read{}, []any{int64(2), "c"}), "2"},
		"job completed":      {taken().says("W1", Complete{}), ""},
		"job forgotten":      {taken(), "9"},
		"job with two":       {taken().says("W2", ClaimJobs{}, jobRow(1, 2)).says("W2", Complete{}), "9"},
		"job late":           {taken().waits(300_000).says("W2", ClaimJobs{}, jobRow(1, 2)).says("W1", Complete{}), "9"},
		"job told of":        {taken().says("E", Enqueue{Label: "K"}, []any{int64(1)}).says("W1", Complete{}), "9"},
		"job before another": {taken().says("E", Enqueue{Label: "K", After: []string{"J"}}, []any{int64(2)}).says("W2", ClaimJobs{}, jobRow(2, 1)).says("W2", Complete{}).says("W1", Complete{}), "14"},
		"job after another":  {taken().says("E", Enqueue{Label: "K", After: []string{"J"}}, []any{int64(2)}).says("W1", Complete{}).says("W2", ClaimJobs{}, jobRow(2, 1)).says("W2", Complete{}), ""},
		"wait timed out":     {publishes(taken(), 5, "pay", "7").says("W1", Await{"pay", "7"}, []any{nil, nil, true}).says("W1", Complete{}), "13"},
		"wait has its event": {publishes(taken(), 5, "pay", "7").says("W1", Await{"pay", "7"}, []any{nil, int64(5), false}).says("W1", Complete{}), ""},
		"step forgotten":     {taken().says("W1", SaveStep{"s"}).waits(300_000).says("W2", ClaimJobs{}, []any{int64(1), int32(2), map[string]any{}}).says("W2", Complete{}), "13"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var numbers []string
			for _, w := range strings.Split(test.h.wrong(), "; ") {
				if _, rest, has := strings.Cut(w, "promise "); has {
					n, _, _ := strings.Cut(rest, ":")
					numbers = append(numbers, n)
				}
			}
			slices.Sort(numbers)
			if got := strings.Join(slices.Compact(numbers), " "); got != test.want {
				t.Errorf("broken: %q, want %q: %s", got, test.want, test.h.wrong())
			}
		})
	}
}
