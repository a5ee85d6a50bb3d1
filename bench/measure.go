package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// bench is shared by the rows while they are measured.
type bench struct {
	options
	server   *server
	progress io.Writer

	temporary  []*database         // databases of the row that is being measured
	log        *database           // see fullLog
	held       *heldPair           // see holding
	sitting    *openSitting        // of this row, and of its neighbours
	own        *bench              // see expendable
	publishers *publishers         // those of the sitting, see openPublishers
	ends       []func()            // see atEnd
	samples    map[string][]sample // of the sustained row, by system
}

// wants reports whether a row is asked for.
func (b *bench) wants(r row) bool { return b.rows.MatchString(r.work) }

// newDatabase makes a database that is dropped at the end of the row.
func (b *bench) newDatabase(ctx context.Context) *database {
	d := b.server.newDatabase(ctx)
	b.temporary = append(b.temporary, d)
	return d
}

// newPlainDatabase makes a database without Posthorn, for a peer. It is dropped at the
// end of the row.
func (b *bench) newPlainDatabase(ctx context.Context) *database {
	d := b.server.create(ctx, "template0")
	b.temporary = append(b.temporary, d)
	d.exec(ctx, "create schema bare")
	return d
}

// endRow drops the databases of the row, so that no vacuum of its tables runs during
// the next row.
func (b *bench) endRow() {
	b.sitting = nil
	if b.own != nil {
		b.own.endRow()
		b.own = nil
	}
	for _, d := range b.temporary {
		d.drop()
	}
	b.temporary = nil
	for _, end := range slices.Backward(b.ends) {
		end()
	}
	b.ends, b.publishers = nil, nil
}

// atEnd registers a function to call at the end of the row, when its databases are dropped.
func (b *bench) atEnd(end func()) { b.ends = append(b.ends, end) }

// startServer starts a further server, which is stopped at the end of the row.
func (b *bench) startServer(ctx context.Context, settings map[string]string) *server {
	o := b.options
	o.databaseURL = ""
	s, err := openServer(ctx, o, settings, b.progress)
	if err != nil {
		check(skip(err.Error()))
	}
	b.atEnd(s.close)
	return s
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// measureAll measures the rows that are asked for. The server's other databases, which
// several rows have used, are dropped when it is closed.
func measureAll(ctx context.Context, s *server, o options, progress io.Writer) (*report, error) {
	b := &bench{options: o, server: s, progress: progress, samples: map[string][]sample{}}
	defer b.endRow()
	r := &report{Run: o.heading(s.version), Samples: b.samples}
	wanted := slices.DeleteFunc(rows(o), func(r row) bool { return !b.wants(r) })
	for i, row := range wanted {
		b.say("%s", row.work)
		one := newResult(row, r.Run)
		err := caught(func() { one.rounds = b.measure(ctx, row) })
		if i+1 == len(wanted) || !row.sits(wanted[i+1]) {
			b.endRow()
		}
		if reason, ok := errors.AsType[skip](err); ok {
			b.say("  skipped: %s", reason)
			one.Skipped = string(reason)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", row.work, err)
		} else {
			one.sum()
		}
		r.Results = append(r.Results, one)
	}
	return r, nil
}

// measure measures the rounds of a row.
func (b *bench) measure(ctx context.Context, row row) (all []round) {
	o := b.sit(ctx, row)
	sides := row.systems
	if row.sitting == nil {
		sides = twoSides
	}
	for _, system := range sides {
		if reason, ok := o.skipped[system]; ok {
			check(reason)
		}
	}
	for i := range o.rounds {
		figures := o.round(ctx, i)
		one := round{ours: figures[sides[0]][row.figure], peer: 1}
		if len(sides) == 1 {
			b.say("  %s%s", figure(one.ours), row.unit)
		} else {
			one.peer = figures[sides[1]][row.figure]
			b.say("  %s beside %s: %.2f", figure(one.ours), figure(one.peer), one.ratio())
		}
		all = append(all, one)
	}
	return all
}

// round is one measurement of both sides. Without another side, the ratio is the value.
type round struct{ ours, peer float64 }

func (r round) ratio() float64 { return r.ours / r.peer }

// median returns, for an even number of values, the lower of the two in the middle,
// so that it is a measured value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
