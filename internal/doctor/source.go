package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// What a broker threw away is told of for so long.
const (
	trimmedLately = 7 * 24 * time.Hour
	sourcesShown  = 10
	trimmedShown  = 5
)

func brokers(ctx context.Context, db pg.DB) ([]Finding, error) {
	troubles, err := pg.SourcesInTrouble(ctx, db, trimmedLately)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, t := range troubles[:min(len(troubles), sourcesShown)] {
		who := fmt.Sprintf("group %s of namespace %s", word(t.Group), t.Namespace)
		if t.Unread > 0 {
			what := fmt.Sprintf("nobody reads %d of the %d streams that it knows", t.Unread, t.Streams)
			if t.Streams == 0 {
				what = "nobody does"
			}
			findings = append(findings, warn(fmt.Sprintf("%s reads %s, and %s", who, t.Source, what),
				"start its programs; or: "+command(t.Namespace, "groups delete", t.Group)))
		}
		if len(t.Trimmed) > 0 {
			findings = append(findings, fail(
				fmt.Sprintf("%s lost events: %s threw them away before it had read them, of %s", who, t.Source, some(t.Trimmed, trimmedShown)),
				"replay them from the archive, and let the broker keep more"))
		}
	}
	if more := len(troubles) - sourcesShown; more > 0 {
		findings = append(findings, warn(fmt.Sprintf("%d more like them", more), ""))
	}
	return orOK(findings, "what groups read from brokers is read"), nil
}

// some are the first of many names.
func some(names []string, shown int) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
