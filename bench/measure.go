package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// bench is shared by the rows while they are measured.
type bench struct {
	options
	server   *server
	progress io.Writer

	temporary []*database // databases of the row that is being measured
	log       *database   // see fullLog
	held      *heldPair   // see holding
}

// newDatabase makes a database that is dropped at the end of the row.
func (b *bench) newDatabase(ctx context.Context) (*database, error) {
	d, err := b.server.newDatabase(ctx)
	if err == nil {
		b.temporary = append(b.temporary, d)
	}
	return d, err
}

// endRow drops the databases of the row, so that no vacuum of its tables runs during
// the next row.
func (b *bench) endRow() {
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
	b := &bench{options: o, server: s, progress: progress}
	defer b.close()
	r := &report{
		Date: time.Now().UTC().Format(time.DateOnly), Postgres: s.version, Cores: runtime.NumCPU(),
		Events: o.events, Rounds: o.rounds, Held: o.held.String(), LogEvents: o.logEvents, LogGroups: o.logGroups, Jobs: o.jobs,
	}
	for _, row := range rows(o) {
		if !o.rows.MatchString(row.work) {
			continue
		}
		result, err := b.measure(ctx, row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.work, err)
		}
		r.Results = append(r.Results, result)
	}
	return r, nil
}

func (b *bench) measure(ctx context.Context, row row) (result, error) {
	b.say("%s", row.work)
	r := result{
		row: row, Work: row.work, Ours: row.ours, Peer: row.peer, Unit: row.unit,
		Floor: row.floor.String(), Target: row.target.String(),
	}
	defer b.endRow()
	ours, peer, err := row.prepare(ctx, b)
	if reason, ok := errors.AsType[skip](err); ok {
		b.say("  skipped: %s", reason)
		r.Skipped = string(reason)
		return r, nil
	}
	if err != nil {
		return result{}, err
	}
	for range b.rounds {
		one, err := alternate(ctx, ours, peer)
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

func alternate(ctx context.Context, ours, peer side) (r round, err error) {
	if r.ours, err = ours(ctx); err != nil {
		return r, fmt.Errorf("ours: %w", err)
	}
	if peer == nil {
		return round{r.ours, 1}, nil
	}
	if r.peer, err = peer(ctx); err != nil {
		return r, fmt.Errorf("beside: %w", err)
	}
	return r, nil
}

// median returns, for an even number of values, the lower of the two in the middle,
// so that it is a measured value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
