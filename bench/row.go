package main

import (
	"context"
	"fmt"
	"strings"
)

// row is a row of the table: a description, and a figure of one or two sides. The limits
// are those of the ratio, or of the value if there is one side.
type row struct {
	work   string // name in docs/performance.md
	floor  limit  // for a first version
	target limit  // the goal
	ours   string // the measured work of Posthorn
	peer   string // the other side's work; empty for none
	unit   string // of both sides
	chart  chartBar

	// prepare prepares two sides that no other row measures. It may fail with a skip. It
	// is nil for a row of a sitting.
	prepare func(ctx context.Context, b *bench) (ours, peer side)

	sitting *sitting
	figure  int      // of the sitting's figures
	systems []string // ours, and the other one if there is one; the names of jobSystem
}

// side does its work once, checks that all of it was done, and returns its speed or
// latency.
type side func(ctx context.Context) float64

// alone returns the measure of a side, which has no other figure.
func (s side) alone() measure {
	return func(ctx context.Context) []float64 { return []float64{s(ctx)} }
}

// skip is the reason why a row cannot be measured here.
type skip string

func (s skip) Error() string { return string(s) }

// limit is the limit of a ratio, or of the value if there is only one side. The zero
// limit accepts every value.
type limit struct {
	sign  string
	ratio float64
	unit  string
}

func atLeast(ratio float64) limit { return limit{"≥", ratio, "×"} }

func atMost(ratio float64) limit { return limit{"≤", ratio, "×"} }

func within(milliseconds float64) limit { return limit{"≤", milliseconds, "ms"} }

func (l limit) holds(ratio float64) bool {
	switch l.sign {
	case "≥":
		return ratio >= l.ratio
	case "≤":
		return ratio <= l.ratio
	}
	return true
}

func (l limit) String() string {
	if l.sign == "" {
		return "–"
	}
	return fmt.Sprintf("%s %s %s", l.sign, trimZeros(l.ratio), l.unit)
}

func trimZeros(ratio float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", ratio), "0"), ".")
}

// rows are the rows of the table in docs/performance.md about the log, in its order, and
// further ones.
func rows(o options) []row {
	var all []row
	for _, some := range [][]row{publishRows(), takeRows(), subscriptionRows, handlerRows, workRows(), jobRows(o), httpRows(), brokerRows, kafkaRows, flatRows(), listenRows(), webhookRows(), heldRows, caughtUpRows, pgqRows} {
		all = append(all, some...)
	}
	return all
}
