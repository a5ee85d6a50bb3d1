package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// period is a duration in JSON: "5m", "1 hour 30 minutes", or a number of seconds.
type period time.Duration

// Schema documents both forms.
func (period) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		OneOf:       []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}},
		Description: `A period: "5m", "10 seconds", or seconds as a number`, Examples: []any{"5m"},
	}
}

var (
	periodText = regexp.MustCompile(`^\s*(?:\d+(?:\.\d+)?\s*[a-z]+\s*)+$`)
	periodPart = regexp.MustCompile(`(\d+(?:\.\d+)?)\s*([a-z]+)`)
)

// maxPeriod is longer than any period that is allowed, and fits a [time.Duration].
const maxPeriod = 100 * 366 * 24 * time.Hour

// UnmarshalJSON reads a period.
func (p *period) UnmarshalJSON(raw []byte) error {
	invalid := fmt.Errorf(`%.40s is not a period; write it like "5m", "10 seconds" or 300`, raw)
	if seconds, err := strconv.ParseFloat(string(raw), 64); err == nil {
		return p.set(seconds*float64(time.Second), invalid)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || !periodText.MatchString(strings.ToLower(text)) {
		return invalid
	}
	total := 0.0
	for _, part := range periodPart.FindAllStringSubmatch(strings.ToLower(text), -1) {
		number, err := strconv.ParseFloat(part[1], 64)
		unit, known := units[part[2]]
		if err != nil || !known {
			return invalid
		}
		total += number * float64(unit)
	}
	return p.set(total, invalid)
}

func (p *period) set(nanoseconds float64, invalid error) error {
	if !(nanoseconds >= 0 && nanoseconds <= float64(maxPeriod)) {
		return invalid
	}
	*p = period(nanoseconds)
	return nil
}

var units = func() map[string]time.Duration {
	all := map[string]time.Duration{}
	for names, unit := range map[string]time.Duration{
		"ms msec msecs millisecond milliseconds": time.Millisecond,
		"s sec secs second seconds":              time.Second,
		"m min mins minute minutes":              time.Minute,
		"h hr hrs hour hours":                    time.Hour,
		"d day days":                             24 * time.Hour,
		"w week weeks":                           7 * 24 * time.Hour,
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = unit
		}
	}
	return all
}()
