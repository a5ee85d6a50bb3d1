package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// A key is replaced by whoever seals next once it is due; a day later something
// keeps it from that, or nobody publishes.
const (
	rotateAfter  = 30 * 24 * time.Hour
	overdueAfter = 24 * time.Hour
	sealedShown  = 10
)

func (o Options) confidential(ctx context.Context, db pg.DB) ([]Finding, error) {
	streams, err := pg.SealedStreams(ctx, db, rotateAfter, overdueAfter)
	if err != nil {
		return nil, err
	}
	held, err := pg.HeldBack(ctx, db, sealedShown)
	if err != nil {
		return nil, err
	}
	findings := append(o.badKeepers(), o.missingKeepers(streams)...)
	old := 0
	for _, s := range streams {
		if s.KeyOverdue {
			if old++; old <= sealedShown {
				findings = append(findings, warn(
					fmt.Sprintf("key %d of stream %s of namespace %s is %s old, past its age", s.ActiveKey, s.Name, s.Namespace, rough(s.KeyAge)),
					"the next message gets a new one; where there are messages, its publishers cannot reach the keeper: see their logs"))
			}
		}
	}
	if more := old - sealedShown; more > 0 {
		findings = append(findings, warn(fmt.Sprintf("%d more keys like them", more), ""))
	}
	for _, h := range held {
		findings = append(findings, warn(
			fmt.Sprintf("delayed event %d of stream %s of namespace %s is not sealed and stays out of the log", h.ID, h.Stream, h.Namespace),
			fmt.Sprintf("take it back: select posthorn.cancel_delayed('%s', %d); and publish it sealed", h.Namespace, h.ID)))
	}
	return orOK(findings, fmt.Sprintf("%d, all is well with them", len(streams))), nil
}

// keeperNamed is a keeper in words. The one of --seal-key has no name.
func keeperNamed(name string) string {
	if name == "" {
		return "the keeper of --seal-key"
	}
	return fmt.Sprintf("keeper %q", name)
}

// badKeepers are those that were given and do not open, such as key files that
// others may read.
func (o Options) badKeepers() []Finding {
	var findings []Finding
	for name, err := range o.Keepers {
		if err != nil {
			findings = append(findings, fail(fmt.Sprintf("%s does not open: %v", keeperNamed(name), err), "see docs/sealing.md"))
		}
	}
	return findings
}

// missingKeepers are those that streams need, or keys of theirs, and that were not
// given.
func (o Options) missingKeepers(streams []pg.SealedStream) []Finding {
	var names []string
	example := map[string]string{}
	for _, s := range streams {
		for _, name := range s.Keepers {
			if _, given := o.Keepers[name]; !given && !slices.Contains(names, name) {
				names = append(names, name)
				example[name] = s.Name + " of namespace " + s.Namespace
			}
		}
	}
	slices.Sort(names)
	var findings []Finding
	for _, name := range names {
		flag := "--seal-key URL"
		if name != "" {
			flag = "--keeper " + name + "=URL"
		}
		findings = append(findings, warn(
			fmt.Sprintf("%s, which stream %s needs, is not configured here", keeperNamed(name), example[name]),
			"a process with these settings cannot read or publish there; give "+flag))
	}
	return findings
}
