package pg

import (
	"context"
	"encoding/json"
	"fmt"
)

// Tended reports what upkeep did.
type Tended struct {
	// Done counts what each part did; parts that another node was at are missing.
	Done map[string]int64
	// Errors are the parts that failed, and why.
	Errors map[string]string
}

// Tend does whatever upkeep is due. Any number of nodes may call it at once. A
// part that fails does not make it fail: see Errors.
func Tend(ctx context.Context, db DB) (Tended, error) {
	report, err := Value[map[string]json.RawMessage](Within(ctx, longTime), db, "tend", "select posthorn.tend()")
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
		if json.Unmarshal(value, &n) == nil { // otherwise it is busy
			t.Done[part] = n
		}
	}
	return t, nil
}
