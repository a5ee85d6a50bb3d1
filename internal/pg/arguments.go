package pg

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Optional makes a zero value null.
func Optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// Document makes a missing JSON document null.
func Document(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return raw
}

// Period is a duration as Postgres reads it, to the microsecond.
func Period(d time.Duration) string {
	return fmt.Sprintf("%d microseconds", d.Microseconds())
}

// OptionalPeriod is [Period], and null for nil.
func OptionalPeriod(d *time.Duration) *string {
	if d == nil {
		return nil
	}
	text := Period(*d)
	return &text
}

// Storable replaces zero characters, which no text in Postgres can contain.
func Storable(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }
