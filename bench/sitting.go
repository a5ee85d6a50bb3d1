package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// sitting measures several systems in the same rounds, and several figures of each, for
// all rows that name it. So a row beside one peer and a row beside another peer have
// the same rounds of Posthorn, and p50 and p99 are of the same samples.
type sitting struct {
	name string
	// open prepares a system, whose measure returns its figures. It may return a skip.
	open func(ctx context.Context, b *bench, system string) (measure, error)
	once bool // measured in one round, which is long
}

// measure does the work of a system once, checks that all of it was done, and returns
// the figures.
type measure func(ctx context.Context) ([]float64, error)

// row returns a row of the sitting: a figure of our system beside that of another one,
// or alone if there is no other.
func (s *sitting) row(r row, figure int, systems ...string) row {
	r.sitting, r.systems, r.once = s, systems, s.once
	r.prepare = func(ctx context.Context, b *bench) (ours, peer side, err error) {
		open, err := b.sit(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		if ours, err = open.side(systems[0], figure); err != nil || len(systems) == 1 {
			return ours, nil, err
		}
		peer, err = open.side(systems[1], figure)
		return ours, peer, err
	}
	return r
}

// openSitting is a sitting while its rows are measured.
type openSitting struct {
	*sitting
	bench    *bench
	systems  []string
	measures map[string]measure
	skipped  map[string]skip
	rounds   []map[string][]float64
}

// sit opens the sitting with the systems of all rows that are asked for, unless it is
// open already.
func (b *bench) sit(ctx context.Context, s *sitting) (*openSitting, error) {
	if b.sitting != nil && b.sitting.name == s.name {
		return b.sitting, nil
	}
	o := &openSitting{sitting: s, bench: b, measures: map[string]measure{}, skipped: map[string]skip{}}
	var systems []string
	for _, r := range rows(b.options) {
		if r.sitting == nil || r.sitting.name != s.name || !b.wants(r) {
			continue
		}
		for _, system := range r.systems {
			if !slices.Contains(systems, system) {
				systems = append(systems, system)
			}
		}
	}
	for _, system := range systems {
		m, err := s.open(ctx, b, system)
		if reason, ok := errors.AsType[skip](err); ok {
			o.skipped[system] = reason
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		o.measures[system] = m
		o.systems = append(o.systems, system)
	}
	b.sitting = o
	if s.once {
		return o, nil
	}
	for range b.warm {
		if err := o.measure(ctx); err != nil {
			return nil, err
		}
	}
	o.rounds = nil
	return o, nil
}

// side plays the rounds that are measured, and measures one when there is none left.
func (o *openSitting) side(system string, figure int) (side, error) {
	if reason, ok := o.skipped[system]; ok {
		return nil, reason
	}
	next := 0
	return func(ctx context.Context) (float64, error) {
		if next == len(o.rounds) {
			if err := o.measure(ctx); err != nil {
				return 0, err
			}
		}
		next++
		return o.rounds[next-1][system][figure], nil
	}, nil
}

// measure measures a round. Each round begins with another system.
func (o *openSitting) measure(ctx context.Context) error {
	round := map[string][]float64{}
	for i := range o.systems {
		system := o.systems[(i+len(o.rounds))%len(o.systems)]
		figures, err := o.measures[system](ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
		round[system] = figures
	}
	o.rounds = append(o.rounds, round)
	return nil
}
