package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

const timeHelp = `TIME is a moment such as 2026-01-31T12:00:00Z, 2026-01-31 (its first second,
local) or 15:04 (the last one that has passed), or a time ago such as -10m or
-1h30m.`

// parseMoment reads a place in the log. A time ago is counted by the database's clock,
// from which events have their times.
func parseMoment(ctx context.Context, adm *admin.Admin, text string) (posthorn.Moment, error) {
	switch text {
	case "beginning":
		return posthorn.Beginning, nil
	case "end", "now":
		return posthorn.End, nil
	}
	now, err := adm.Now(ctx)
	if err != nil {
		return posthorn.Moment{}, err
	}
	t, err := pastTime(text, now)
	return posthorn.At(t), err
}

func pastTime(text string, now time.Time) (time.Time, error) {
	if ago, found := strings.CutPrefix(plainMinus(text), "-"); found {
		if d, err := time.ParseDuration(ago); err == nil {
			return now.Add(-d), nil
		}
	}
	t, clock, err := parseTime(text, now)
	if err == nil && clock && t.After(now) {
		t = t.AddDate(0, 0, -1)
	}
	return t, err
}

// futureTime reads a time to come: a duration from now, or a time of day, which is
// tomorrow's if today's has passed.
func futureTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	t, clock, err := parseTime(text, now)
	if err == nil && clock && t.Before(now) {
		t = t.AddDate(0, 0, 1)
	}
	return t, err
}

// parseTime reads a time, and reports whether it was only a time of day.
func parseTime(text string, now time.Time) (t time.Time, clock bool, err error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, false, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			y, m, d := now.Local().Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.Local), true, nil
		}
	}
	return time.Time{}, false, usageError{
		fmt.Errorf("%q is no time", plainMinus(text)),
		"write it like 2026-01-31T12:00:00Z, 2026-01-31, 15:04 or -10m",
	}
}

// minus is the typographic minus. shieldNegative writes it, and users may copy it from
// documents.
const minus = "−"

func plainMinus(text string) string {
	if rest, found := strings.CutPrefix(text, minus); found {
		return "-" + rest
	}
	return text
}

// shieldNegative makes a time ago such as -1h an argument: cobra would take it for flags.
func shieldNegative(args []string) []string {
	shielded := make([]string, len(args))
	for i, arg := range args {
		isValue := i > 0 && strings.HasPrefix(args[i-1], "--")
		if !isValue && len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' {
			arg = minus + arg[1:]
		}
		shielded[i] = arg
	}
	return shielded
}
