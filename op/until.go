package op

import "time"

// Until looks until it has found something, has come to the end, or has looked for a time. look returns the place behind
// which the next look begins, 0 at the end.
func Until[T any](patience time.Duration, after int64, look func(after int64) (found []T, next int64, err error)) (found []T, next int64, err error) {
	for began := time.Now(); ; after = next {
		found, next, err = look(after)
		if err != nil || len(found) > 0 || next == 0 || time.Since(began) > patience {
			return found, next, err
		}
	}
}
