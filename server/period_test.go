package server

import (
	"encoding/json"
	"testing"
	"time"
)

func TestPeriods(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		`"5m"`: 5 * time.Minute, `"10 seconds"`: 10 * time.Second, `300`: 5 * time.Minute, `0`: 0, `0.25`: 250 * time.Millisecond,
		`"1h30m"`: 90 * time.Minute, `"1 hour 30 minutes"`: 90 * time.Minute, `" 2 Days "`: 48 * time.Hour,
		`"1.5 s"`: 1500 * time.Millisecond, `"250ms"`: 250 * time.Millisecond, `1e2`: 100 * time.Second,
	} {
		var p period
		if err := json.Unmarshal([]byte(text), &p); err != nil || time.Duration(p) != want {
			t.Errorf("%s is %v, %v", text, time.Duration(p), err)
		}
	}
	for _, text := range []string{
		`""`, `"5"`, `"m"`, `"-5m"`, `-1`, `"5 parsecs"`, `"5m!"`, `null`, `true`, `[]`, `{}`, `1e400`, `1e15`, `"99999999999999999999 years"`,
		`"NaN s"`, `"1e9 days"`,
	} {
		p := period(-1)
		if err := json.Unmarshal([]byte(text), &p); err == nil && text != "null" {
			t.Errorf("%s passes for %v", text, time.Duration(p))
		}
	}
}
