// Package tend keeps the upkeep of the log going: ticks, delayed events, swept
// remains, partitions ahead. Any number of nodes may do it at once.
//
// It owns when upkeep is called for and what is said when it fails. What upkeep
// consists of, and whether anything is due, is up to the function posthorn.tend.
package tend

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// interval bounds how late a delayed event may be. A call that finds nothing due
// reads a few pages and writes none.
const interval = 250 * time.Millisecond

// Run tends the log until ctx ends. It uses one connection of db at a time, and
// goes on when a call fails: the next one may work.
func Run(ctx context.Context, db pg.DB, log *slog.Logger) {
	complaints := complaints{log: log, known: map[string]string{}}
	for {
		tended, err := pg.Tend(ctx, db)
		if ctx.Err() != nil {
			return
		}
		complaints.note(tended.Errors, err)
		if !worker.Pause(ctx, interval) {
			return
		}
	}
}

// complaints logs an error when it appears and when it is gone, not each time.
type complaints struct {
	log   *slog.Logger
	known map[string]string // by part of the upkeep
	cut   bool              // the last call had no connection
}

func (c *complaints) note(errors map[string]string, err error) {
	if pg.IsUnreachable(err) { // the log reports the end of an outage itself
		if !c.cut {
			c.log.Warn("upkeep could not run", "error", err)
		}
		c.cut = true
		return
	}
	c.cut = false
	current := maps.Clone(errors)
	if err != nil {
		// Nothing is known of the parts, so what they said stands.
		current = maps.Clone(c.known)
		current["all of it"] = err.Error()
	}
	for _, part := range slices.Sorted(maps.Keys(current)) {
		if c.known[part] != current[part] {
			c.log.Warn("upkeep has an error", "part", part, "error", current[part])
		}
	}
	for _, part := range slices.Sorted(maps.Keys(c.known)) {
		if _, still := current[part]; !still {
			c.log.Info("upkeep works again", "part", part)
		}
	}
	c.known = current
	if c.known == nil {
		c.known = map[string]string{}
	}
}
