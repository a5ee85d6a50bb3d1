package pg

import (
	"context"
	"encoding/json"
	"fmt"
)

// Tended is the report of [Tend].
type Tended struct {
	// Done has the number of things that each part has done. A part that another node
	// was running is missing.
	Done map[string]int64
	// Errors has the errors of the parts that failed.
	Errors map[string]string
}

// Tend does the upkeep that is due. Any number of nodes may call it at once. If a part
// fails, Tend does the others and returns no error.
func Tend(ctx context.Context, db DB) (Tended, error) {
	report, err := Value[map[string]json.RawMessage](Within(ctx, upkeepTime), db, "tend", "select posthorn.tend()")
	if err != nil {
		return Tended{}, err
	}
	t := Tended{Done: map[string]int64{}}
	for part, value := range report {
		if part == "errors" {
			if err := json.Unmarshal(value, &t.Errors); err != nil {
				return Tended{}, fmt.Errorf("tend: %w", err)
			}
			continue
		}
		var n int64
		if json.Unmarshal(value, &n) == nil { // otherwise another node runs the part
			t.Done[part] = n
		}
	}
	return t, nil
}
