package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)

func TestPastTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"-10m":                 noon.Add(-10 * time.Minute),
		"−1h30m":               noon.Add(-90 * time.Minute),
		"11:30":                noon.Add(-30 * time.Minute),
		"15:04":                time.Date(2026, 1, 30, 15, 4, 0, 0, time.Local),
		"2026-01-30":           time.Date(2026, 1, 30, 0, 0, 0, 0, time.Local),
		"2026-01-30 08:15":     time.Date(2026, 1, 30, 8, 15, 0, 0, time.Local),
		"2026-01-30T08:15:00Z": time.Date(2026, 1, 30, 8, 15, 0, 0, time.UTC),
	} {
		if got, err := pastTime(text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestFutureTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"10m":        noon.Add(10 * time.Minute),
		"15:04":      time.Date(2026, 1, 31, 15, 4, 0, 0, time.Local),
		"11:30":      time.Date(2026, 2, 1, 11, 30, 0, 0, time.Local),
		"2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local),
	} {
		if got, err := futureTime(text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestNoTime(t *testing.T) {
	for _, text := range []string{"", "-", "-10", "10m", "yesterday", "25:00", "2026-02-30"} {
		if got, err := pastTime(text, noon); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestShieldNegative(t *testing.T) {
	got := shieldNegative([]string{"groups", "seek", "g", "-1h", "--namespace", "-1", "-x", "-"})
	want := []string{"groups", "seek", "g", "−1h", "--namespace", "-1", "-x", "-"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}
