package page

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// trouble is something that is wrong, and what to do about it.
type trouble struct {
	Key     string
	Mild    bool // it works, but not for long, not fast or not safely
	Title   template.HTML
	Text    template.HTML
	Show    string // the link of the page that shows it
	Buttons []ask
}

// ask is a link to a page that asks before an action.
type ask struct {
	Path, Label string
	Parameters  []any
}

// troublesOf lists everything that is wrong in a namespace, the worst first.
func troublesOf(r *Request, o overviewData) []trouble {
	var all []trouble
	known := map[string]bool{} // groups that the doctor has named
	for _, f := range o.Findings {
		if f.Level == admin.OK {
			continue
		}
		if f.Check == "groups" {
			known[f.Subject] = true
		}
		all = append(all, findingTrouble(r, f))
	}
	all = append(all, deadTroubles(r, o.Reasons, o.Summary.Now)...)
	for _, g := range o.Worst {
		if !known[g.Group] && g.LagBefore != nil && g.LagSeconds > *g.LagBefore+fallingBehind && !g.Paused {
			all = append(all, trouble{
				Key: "lag " + g.Group, Mild: true, Title: "Group " + text(g.Group) + " falls behind",
				Text: template.HTML(fmt.Sprintf("%s behind, and %s ten minutes ago. %s read it. Start more workers.",
					period(g.LagSeconds), period(*g.LagBefore), things(g.Readers, "process"))),
				Show: r.Link("group", "name", g.Group),
			})
		}
	}
	if n := o.Summary.JobsStalled; n > 0 {
		all = append(all, trouble{
			Key: "stalled jobs", Mild: true, Title: template.HTML(things(n, "job") + " stalled"),
			Text: "Their workers have sent no sign of life for 30 seconds. When their leases end, other workers get them.", Show: r.Link("jobs", "status", admin.JobProcessing),
		})
	}
	if n := o.Summary.SchedulesFailing; n > 0 {
		all = append(all, trouble{
			Key: "failing schedules", Mild: true, Title: template.HTML(things(n, "schedule") + " failing"), Text: "They publish nothing at their times. Their pages show the errors.", Show: r.Link("schedules"),
		})
	}
	slices.SortStableFunc(all, func(a, b trouble) int {
		switch {
		case a.Mild == b.Mild:
			return 0
		case b.Mild:
			return -1
		}
		return 1
	})
	return all
}

// findingTrouble shows a finding of the doctor, as sentences. The page is of one
// namespace, so the title need not name it. Names of settings keep their letters.
func findingTrouble(r *Request, f admin.Finding) trouble {
	found, advice := strings.Replace(f.Found, " of namespace "+r.Namespace, "", 1), upperFirst(f.Advice)
	if f.Check != "settings" {
		found = upperFirst(found)
	}
	t := trouble{Key: f.Check + " " + f.Subject + " " + f.Found, Mild: f.Level == admin.Warn, Title: text(found), Text: text(advice)}
	switch f.Check {
	case "groups", "subscriptions":
		if f.Check == "groups" && f.Subject != "" {
			t.Show = r.Link("group", "name", f.Subject)
		} else {
			t.Show = r.Link("groups")
		}
	case "jobs":
		t.Show = r.Link("jobs", "tag", f.Subject)
	case "webhooks":
		if f.Subject == "" {
			t.Show = r.Link("webhooks")
		} else {
			t.Show = r.Link("webhook", "name", f.Subject)
		}
	case "relays", "archives", "imports":
		t.Show = r.Link("relays")
	case "confidential streams":
		t.Show = r.Link("streams")
	}
	return t
}

func upperFirst(s string) string {
	if s != "" && 'a' <= s[0] && s[0] <= 'z' {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

// deadTroubles shows the dead letters of the last day by their reasons, and older ones
// in one line.
func deadTroubles(r *Request, reasons []admin.DeadLetterReason, now time.Time) []trouble {
	var all []trouble
	var older int64
	for _, d := range reasons {
		if now.Sub(d.LastFailedAt) > recentlyDied || len(all) == shownReasons {
			older += d.DeadLetters
			continue
		}
		title := "Group " + text(d.Group) + ": " + template.HTML(things(d.DeadLetters, "dead letter"))
		if d.Subscription != "" {
			title += " of handler " + text(d.Subscription)
		}
		about := text(d.Reason) + ", last " + ago(d.LastFailedAt)
		if d.DeadLetters > 1 {
			about += ", first " + ago(d.FirstFailedAt)
		}
		if d.LastError != "" {
			about += ": <code>" + short(d.LastError) + "</code>"
		}
		filter := []any{"group", d.Group, "subscription", d.Subscription, "reason", d.Reason}
		all = append(all, trouble{
			Key: fmt.Sprintf("dead %q", []string{d.Group, d.Subscription, d.Reason}), Mild: now.Sub(d.LastFailedAt) > diesNow, Title: title, Text: about,
			Show: r.Link("dead-letters", filter...), Buttons: []ask{{"dead-letters/redrive", "Redrive " + count(d.DeadLetters) + "…", filter}},
		})
	}
	if older > 0 {
		all = append(all, trouble{
			Key: "older dead letters", Mild: true, Title: template.HTML(things(older, "other dead letter")),
			Text: "Redrive those that are owed, and discard the others.", Show: r.Link("dead-letters"),
		})
	}
	return all
}
