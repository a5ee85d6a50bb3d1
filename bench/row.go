package main

import (
	"context"
	"fmt"
	"strings"
)

// row is a line of the table.
type row struct {
	work   string // as docs/performance.md calls it
	floor  limit  // of a first version
	target limit  // where it should go
	ours   string // what is measured
	than   string // beside what; empty for nothing
	unit   string // of both
	// prepare makes what the two sides need. It may return a skip, or no second
	// side: then the first is held against the limits by itself.
	prepare func(ctx context.Context, b *bench) (ours, than side, err error)
}

// side does its work once, checks that all of it was done, and returns how
// fast, or for latencies how slow, it was.
type side func(ctx context.Context) (float64, error)

// skip is the reason why a row cannot be measured here.
type skip string

func (s skip) Error() string { return string(s) }

// limit is what a ratio is held against, or a value where there is only one
// side; its zero value holds nothing.
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

// rows are those of docs/performance.md that are about the log, in its order,
// and what else was promised.
func rows(o options) []row {
	var all []row
	for _, some := range [][]row{publishRows, takeRows, subscriptionRows, handlerRows, jobRows(o), httpRows, brokerRows, latencyRows, listenRows, heldRows, caughtUpRows, pgqRows} {
		all = append(all, some...)
	}
	return all
}
