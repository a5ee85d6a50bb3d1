package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

const (
	importsShown = 10
	trimmedShown = 5
)

// imports looks for imports that do not go on, or that lost events. A broker keeps
// what is not imported for a while only.
func imports(ctx context.Context, db pg.DB) ([]Finding, error) {
	all, err := pg.Imports(ctx, db)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, i := range all {
		which := fmt.Sprintf("import %s of namespace %s", word(i.Import), i.Namespace)
		look := "look: " + command(i.Namespace, "imports show", i.Import)
		if len(i.Trimmed) > 0 {
			findings = append(findings, fail(
				fmt.Sprintf("%s lost events: %s removed them before they were imported, of %s", which, i.Source, some(i.Trimmed, trimmedShown)),
				"replay them where they were published, and let the broker keep more"))
		}
		switch {
		case i.Owner == "":
			findings = append(findings, warn(fmt.Sprintf("no process runs %s from %s; how much is left there is not known", which, i.Source),
				"start it: "+command(i.Namespace, "import URL --name", i.Import)+"; or: "+command(i.Namespace, "imports delete", i.Import)))
		case i.Error != "":
			findings = append(findings, warn(fmt.Sprintf("%s cannot go on: %s", which, i.Error), look))
		case i.LagSeconds != nil && *i.LagSeconds >= unwritten.Seconds():
			findings = append(findings, warn(
				fmt.Sprintf("%s is %d events behind %s, the oldest of them there for %s", which, *i.LagEvents, i.Source, rough(time.Duration(*i.LagSeconds*float64(time.Second)))), look))
		}
	}
	well := fmt.Sprintf("%d, none of which is %s behind or has an error", len(all), rough(unwritten))
	if len(all) == 0 {
		well = "there is none"
	}
	return orOK(atMost(findings, importsShown), well), nil
}

// some are the first of many names.
func some(names []string, shown int) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
