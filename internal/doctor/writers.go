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
	return writers("relay", relays, "start it: posthorn --namespace %[1]s relay URL --name %[2]s", "look: posthorn --namespace %[1]s relays show %[2]s"), err
}

func archives(ctx context.Context, db pg.DB) ([]Finding, error) {
	archives, err := pg.Archives(ctx, db)
	return writers("archive", archives, "start it: posthorn --namespace %[1]s archive URL --name %[2]s", "look: posthorn --namespace %[1]s archive show %[2]s"), err
}

func writers(kind string, all []pg.Writer, start, look string) []Finding {
	var findings []Finding
	for _, w := range all {
		which := fmt.Sprintf("%s %s of namespace %s", kind, w.Name, w.Namespace)
		switch {
		case w.Error != "":
			findings = append(findings, warn(fmt.Sprintf("%s cannot write: %s", which, w.Error), fmt.Sprintf(look, w.Namespace, w.Name)))
		case w.Events > 0 && !w.Running && w.Behind > 0:
			findings = append(findings, warn(
				fmt.Sprintf("%s has %d events to write, and no process runs it", which, w.Events), fmt.Sprintf(start, w.Namespace, w.Name)))
		case w.Behind >= unwritten:
			findings = append(findings, warn(
				fmt.Sprintf("%s has %d events to write, the oldest for %s", which, w.Events, rough(w.Behind)), fmt.Sprintf(look, w.Namespace, w.Name)))
		}
	}
	well := fmt.Sprintf("%d, none of which is %s behind or has an error", len(all), rough(unwritten))
	if len(all) == 0 {
		well = "there is none"
	}
	return orOK(atMost(findings, writersShown), well)
}
