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

// bench is what rows share while they are measured.
type bench struct {
	options
	server   *server
	progress io.Writer

	temporary []*database // of the row that is being measured
	log       *database   // see fullLog
	held      *heldPair   // see holding
}

// newDatabase makes a database that lives as long as the row.
func (b *bench) newDatabase(ctx context.Context) (*database, error) {
	d, err := b.server.newDatabase(ctx)
	if err == nil {
		b.temporary = append(b.temporary, d)
	}
	return d, err
}

// endRow drops what the row has made, so that no vacuum of its tables runs
// beside the next.
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
		row: row, Work: row.work, Ours: row.ours, Than: row.than, Unit: row.unit,
		Floor: row.floor.String(), Target: row.target.String(),
	}
	defer b.endRow()
	ours, than, err := row.prepare(ctx, b)
	if reason, ok := errors.AsType[skip](err); ok {
		b.say("  skipped: %s", reason)
		r.Skipped = string(reason)
		return r, nil
	}
	if err != nil {
		return result{}, err
	}
	for range b.rounds {
		one, err := alternate(ctx, ours, than)
		if err != nil {
			return result{}, err
		}
		if than == nil {
			b.say("  %s%s", figure(one.ours), row.unit)
		} else {
			b.say("  %s beside %s: %.2f", figure(one.ours), figure(one.than), one.ratio())
		}
		r.rounds = append(r.rounds, one)
	}
	r.sum()
	return r, nil
}

// round is one measurement of both sides. They take turns, so that whatever
// else the machine does hits both. Beside nothing, the ratio is the value.
type round struct{ ours, than float64 }

func (r round) ratio() float64 { return r.ours / r.than }

func alternate(ctx context.Context, ours, than side) (r round, err error) {
	if r.ours, err = ours(ctx); err != nil {
		return r, fmt.Errorf("ours: %w", err)
	}
	if than == nil {
		return round{r.ours, 1}, nil
	}
	if r.than, err = than(ctx); err != nil {
		return r, fmt.Errorf("beside: %w", err)
	}
	return r, nil
}

// median of an even number of values is the lower of the two in the middle: a
// figure that was measured.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
