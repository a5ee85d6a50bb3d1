package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// A relay or an archive that is that far behind does not keep up.
const (
	unwritten    = 5 * time.Minute
	writersShown = 10
)

func relays(ctx context.Context, db pg.DB) ([]Finding, error) {
	relays, err := pg.Relays(ctx, db)
	return writers("relay", relays, "relay URL --name", "relays show"), err
}

func archives(ctx context.Context, db pg.DB) ([]Finding, error) {
	archives, err := pg.Archives(ctx, db)
	return writers("archive", archives, "archive URL --name", "archive show"), err
}

func writers(kind string, all []pg.Writer, start, look string) []Finding {
	var findings []Finding
	for _, w := range all {
		which := fmt.Sprintf("%s %s of namespace %s", kind, word(w.Name), w.Namespace)
		switch {
		case w.Error != "":
			findings = append(findings, warn(fmt.Sprintf("%s cannot write: %s", which, w.Error), "look: "+command(w.Namespace, look, w.Name)))
		case w.Events > 0 && !w.Running && w.Behind > 0:
			findings = append(findings, warn(
				fmt.Sprintf("%s has %d events to write, and no process runs it", which, w.Events), "start it: "+command(w.Namespace, start)+" "+word(w.Name)))
		case w.Behind >= unwritten:
			findings = append(findings, warn(
				fmt.Sprintf("%s has %d events to write, the oldest for %s", which, w.Events, rough(w.Behind)), "look: "+command(w.Namespace, look, w.Name)))
		}
	}
	well := fmt.Sprintf("%d, none of which is %s behind or has an error", len(all), rough(unwritten))
	if len(all) == 0 {
		well = "there is none"
	}
	return orOK(atMost(findings, writersShown), well)
}
