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

	temporary []*database // databases of the row that is being measured
	log       *database   // see fullLog
	held      *heldPair   // see holding
	sitting   *openSitting
	own       *bench              // see expendable
	samples   map[string][]sample // of the sustained row, by system
}

// wants reports whether a row is asked for.
func (b *bench) wants(r row) bool { return b.rows.MatchString(r.work) }

// newDatabase makes a database that is dropped at the end of the row.
func (b *bench) newDatabase(ctx context.Context) (*database, error) {
	d, err := b.server.newDatabase(ctx)
	if err == nil {
		b.temporary = append(b.temporary, d)
	}
	return d, err
}

// newPlainDatabase makes a database without Posthorn, for a peer. It is dropped at the
// end of the row.
func (b *bench) newPlainDatabase(ctx context.Context) (*database, error) {
	d, err := b.server.create(ctx, "template0")
	if err != nil {
		return nil, err
	}
	b.temporary = append(b.temporary, d)
	_, err = d.Exec(ctx, "create schema bare")
	return d, err
}

// endRow drops the databases of the row, so that no vacuum of its tables runs during
// the next row.
func (b *bench) endRow() {
	b.sitting = nil
	if b.own != nil {
		b.own.close()
		b.own.server.close()
		b.own = nil
	}
	for _, d := range b.temporary {
		d.drop()
	}
	b.temporary = nil
}

func (b *bench) close() {
	b.endRow()
	if b.held != nil {
		b.held.drop()
	}
	if b.log != nil {
		b.log.drop()
	}
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

func measureAll(ctx context.Context, s *server, o options, progress io.Writer) (*report, error) {
	b := &bench{options: o, server: s, progress: progress, samples: map[string][]sample{}}
	defer b.close()
	r := &report{Run: o.heading(s.version)}
	wanted := slices.DeleteFunc(rows(o), func(r row) bool { return !b.wants(r) })
	for i, row := range wanted {
		result, err := b.measure(ctx, row)
		if i+1 == len(wanted) || !row.sits(wanted[i+1]) {
			b.endRow()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.work, err)
		}
		result.Run = r.Run
		r.Results = append(r.Results, result)
	}
	r.Samples = b.samples
	return r, nil
}

func (b *bench) measure(ctx context.Context, row row) (result, error) {
	b.say("%s", row.work)
	r := result{
		row: row, Work: row.work, Ours: row.ours, Peer: row.peer, Unit: row.unit,
		Floor: row.floor.String(), Target: row.target.String(),
	}
	ours, peer, err := row.prepare(ctx, b)
	if reason, ok := errors.AsType[skip](err); ok {
		b.say("  skipped: %s", reason)
		r.Skipped = string(reason)
		return r, nil
	}
	if err != nil {
		return result{}, err
	}
	rounds := b.rounds
	if row.once {
		rounds = 1
	} else if row.sitting == nil { // a sitting warms its systems itself
		for range b.warm {
			if _, err := alternate(ctx, ours, peer, false); err != nil {
				return result{}, err
			}
		}
	}
	for i := range rounds {
		one, err := alternate(ctx, ours, peer, i%2 == 1)
		if err != nil {
			return result{}, err
		}
		if peer == nil {
			b.say("  %s%s", figure(one.ours), row.unit)
		} else {
			b.say("  %s beside %s: %.2f", figure(one.ours), figure(one.peer), one.ratio())
		}
		r.rounds = append(r.rounds, one)
	}
	r.sum()
	return r, nil
}

// round is one measurement of both sides. They alternate, so that other load on the
// machine affects both. Without a peer, the ratio is the value.
type round struct{ ours, peer float64 }

func (r round) ratio() float64 { return r.ours / r.peer }

// alternate measures both sides. The side that goes first changes with each round.
func alternate(ctx context.Context, ours, peer side, peerFirst bool) (r round, err error) {
	if peer == nil {
		if r.ours, err = ours(ctx); err != nil {
			return r, fmt.Errorf("ours: %w", err)
		}
		return round{r.ours, 1}, nil
	}
	for i := range 2 {
		if (i == 0) == peerFirst {
			if r.peer, err = peer(ctx); err != nil {
				return r, fmt.Errorf("beside: %w", err)
			}
		} else if r.ours, err = ours(ctx); err != nil {
			return r, fmt.Errorf("ours: %w", err)
		}
	}
	return r, nil
}

// median returns, for an even number of values, the lower of the two in the middle,
// so that it is a measured value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
