package main

import (
	"context"
	"errors"
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
	r.sitting, r.figure, r.systems = s, figure, systems
	return r
}

// sits reports whether two rows share a sitting.
func (r row) sits(other row) bool {
	return r.sitting != nil && other.sitting != nil && r.sitting.name == other.sitting.name
}

// openSitting is a sitting while its rows are measured, or the two sides of one row.
type openSitting struct {
	first    row
	rounds   int
	systems  []string
	measures map[string]measure
	skipped  map[string]skip
	measured []map[string][]float64 // figures of the systems, by round
}

// The names of the sides of a row without a sitting.
var twoSides = []string{"ours", "beside"}

// sit opens the sitting of a row, unless it is open already. The systems are warm then.
func (b *bench) sit(ctx context.Context, r row) *openSitting {
	if b.sitting != nil && b.sitting.first.sits(r) {
		return b.sitting
	}
	o := &openSitting{first: r, rounds: b.rounds, measures: map[string]measure{}, skipped: map[string]skip{}}
	warm := b.warm
	if r.sitting == nil {
		ours, peer := r.prepare(ctx, b)
		o.systems = twoSides
		o.measures = map[string]measure{twoSides[0]: ours.alone(), twoSides[1]: peer.alone()}
	} else {
		o.openSystems(ctx, b, r.sitting)
		if r.sitting.once {
			o.rounds, warm = 1, 0
		}
	}
	b.sitting = o
	for range warm {
		o.measure(ctx)
	}
	o.measured = nil
	return o
}

// openSystems opens the systems of all rows of a sitting that are asked for.
func (o *openSitting) openSystems(ctx context.Context, b *bench, s *sitting) {
	for _, r := range rows(b.options) {
		if !r.sits(o.first) || !b.wants(r) {
			continue
		}
		for _, system := range r.systems {
			if o.measures[system] != nil || o.skipped[system] != "" {
				continue
			}
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
	}
}

// round returns the figures of a round, which is measured unless a row before has
// measured it.
func (o *openSitting) round(ctx context.Context, i int) map[string][]float64 {
	if i == len(o.measured) {
		o.measure(ctx)
	}
	return o.measured[i]
}

// measure measures a round. They alternate between the systems, so that other load on the
// machine affects all; each round begins with another system.
func (o *openSitting) measure(ctx context.Context) {
	round := map[string][]float64{}
	for i := range o.systems {
		system := o.systems[(i+len(o.measured))%len(o.systems)]
		naming(system, func() { round[system] = o.measures[system](ctx) })
	}
	o.measured = append(o.measured, round)
}
