package main

import (
	"context"
	"errors"
	"slices"
)

// sitting measures several systems in the same rounds, and several figures of each, for
// all rows that name it. So a row beside one peer and a row beside another peer have
// the same rounds of Posthorn, and p50 and p99 are of the same samples.
type sitting struct {
	name string
	// open prepares a system, whose measure returns its figures. It may fail with a skip.
	open func(ctx context.Context, b *bench, system string) measure
	once bool // measured in one round, which is long
}

// measure does the work of a system once, checks that all of it was done, and returns
// the figures.
type measure func(ctx context.Context) []float64

// row returns a row of the sitting: a figure of our system beside that of another one,
// or alone if there is no other.
func (s *sitting) row(r row, figure int, systems ...string) row {
	r.sitting, r.systems, r.once = s, systems, s.once
	r.prepare = func(ctx context.Context, b *bench) (ours, peer side) {
		open := b.sit(ctx, s)
		if len(systems) > 1 {
			peer = open.side(systems[1], figure)
		}
		return open.side(systems[0], figure), peer
	}
	return r
}

// openSitting is a sitting while its rows are measured.
type openSitting struct {
	*sitting
	systems  []string
	measures map[string]measure
	skipped  map[string]skip
	rounds   []map[string][]float64
}

// sit opens the sitting with the systems of all rows that are asked for, unless it is
// open already.
func (b *bench) sit(ctx context.Context, s *sitting) *openSitting {
	if b.sitting != nil && b.sitting.name == s.name {
		return b.sitting
	}
	o := &openSitting{sitting: s, measures: map[string]measure{}, skipped: map[string]skip{}}
	var wanted []string
	for _, r := range rows(b.options) {
		if r.sitting != nil && r.sitting.name == s.name && b.wants(r) {
			wanted = append(wanted, r.systems...)
		}
	}
	for _, system := range distinct(wanted) {
		err := caught(func() { o.measures[system] = s.open(ctx, b, system) })
		if reason, ok := errors.AsType[skip](err); ok {
			o.skipped[system] = reason
			continue
		}
		if err != nil {
			fail("%s: %w", system, err)
		}
		o.systems = append(o.systems, system)
	}
	b.sitting = o
	if !s.once {
		for range b.warm {
			o.measure(ctx)
		}
		o.rounds = nil
	}
	return o
}

// distinct returns the first of equal values, in their order.
func distinct(values []string) (all []string) {
	for _, value := range values {
		if !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

// side plays the rounds that are measured, and measures one when there is none left.
func (o *openSitting) side(system string, figure int) side {
	if reason, ok := o.skipped[system]; ok {
		check(reason)
	}
	next := 0
	return func(ctx context.Context) float64 {
		if next == len(o.rounds) {
			o.measure(ctx)
		}
		next++
		return o.rounds[next-1][system][figure]
	}
}

// measure measures a round. Each round begins with another system.
func (o *openSitting) measure(ctx context.Context) {
	round := map[string][]float64{}
	for i := range o.systems {
		system := o.systems[(i+len(o.rounds))%len(o.systems)]
		naming(system, func() { round[system] = o.measures[system](ctx) })
	}
	o.rounds = append(o.rounds, round)
}
