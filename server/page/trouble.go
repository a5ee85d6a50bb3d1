package page

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// trouble is a thing that is wrong, with its remedy.
type trouble struct {
	Key     string
	Rank    int   // for the order: broken, failing or mild
	Size    int64 // events or jobs that are concerned
	Title   template.HTML
	Text    template.HTML
	Show    string // the link of the page that shows it
	Buttons []ask

	failed string // the only job that failed in the last day
	behind string // the job behind which others wait
}

// The ranks of troubles.
const (
	broken  = iota // it does not work, or loses events
	failing        // something is tried now, and fails
	mild           // it works, but not for long, not fast or not safely
)

// Mild tells whether nothing fails now.
func (t trouble) Mild() bool { return t.Rank == mild }

// ask is a link to a page that asks before an action.
type ask struct {
	Path, Label string
	Parameters  []any
}

// troublesOf lists everything that is wrong in a namespace: first the things that fail now,
// the largest of them first.
func troublesOf(r *Request, o overviewData) []trouble {
	var all []trouble
	for _, f := range o.Findings {
		if f.Level != admin.OK {
			all = append(all, findingTrouble(r, f))
		}
	}
	all = foldFailed(all)
	all = append(all, deadTroubles(r, o.reasons, o.Summary.Now)...)
	for _, g := range o.Worst {
		// The doctor names those that nobody reads, and those that are an hour behind.
		if g.LagBefore != nil && g.LagSeconds > *g.LagBefore+fallingBehind && g.LagSeconds < farBehind && g.IdleSeconds < unread && !g.Paused {
			all = append(all, trouble{
				Key: "lag " + g.Group, Rank: mild, Size: g.LagEvents, Title: "Group " + text(g.Group) + " falls behind",
				Text: template.HTML(fmt.Sprintf("%s behind, and %s ten minutes ago. %s it. Start more workers.",
					period(g.LagSeconds), period(*g.LagBefore), whoReads(g.Readers))),
				Show: r.Link("group", "name", g.Group),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(b.Size, a.Size))
	})
	return all
}

// foldFailed puts the only job that failed in the last day into the warning of the jobs behind it, if that names it.
func foldFailed(all []trouble) []trouble {
	failed := slices.IndexFunc(all, func(t trouble) bool { return t.failed != "" })
	behind := slices.IndexFunc(all, func(t trouble) bool { return t.behind != "" && failed >= 0 && t.behind == all[failed].failed })
	if behind < 0 {
		return all
	}
	all[behind].Text = all[failed].Title + ". " + all[behind].Text
	all[behind].Rank = min(all[behind].Rank, all[failed].Rank)
	return slices.Delete(all, failed, failed+1)
}

// whoReads says how many processes read a group: 1 process reads, 3 processes read.
func whoReads(readers int64) string {
	if readers == 1 {
		return "1 process reads"
	}
	return count(readers) + " processes read"
}

// findingTrouble shows a finding of the doctor, as sentences. The page is of one
// namespace, so the title need not name it. Names of settings keep their letters.
func findingTrouble(r *Request, f admin.Finding) trouble {
	found, advice := strings.NewReplacer(" of namespace "+r.Namespace, "", " in namespace "+r.Namespace, "").Replace(f.Found), upperFirst(f.Advice)
	if f.Check != "settings" {
		found = upperFirst(found)
	}
	t := trouble{Key: f.Check + " " + f.Subject + " " + f.Found, Rank: broken, Size: f.Size, Title: text(found), Text: text(advice)}
	if f.Failing {
		t.Rank = failing
	} else if f.Level == admin.Warn {
		t.Rank = mild
	}
	one := func(list, path, key string) string {
		if f.Subject == "" {
			return r.Link(list)
		}
		return r.Link(path, key, f.Subject)
	}
	switch f.Check {
	case "groups", "projections":
		t.Show = one(f.Check, "group", "name")
	case "subscriptions":
		t.Show = r.Link("groups")
	case "jobs":
		t.Show = jobTrouble(r, f)
		if f.Kind == "jobs behind jobs that failed" {
			t.behind = f.Subject
		}
	case "failed jobs":
		t.failed = f.Subject
		filter := parametersOf(f.Filter)
		t.Show = r.Link("jobs", filter...)
		t.Buttons = []ask{{"jobs/retry", "Retry all…", filter}}
	case "webhooks":
		t.Show = one("webhooks", "webhook", "name")
	case "schedules":
		t.Show = one("schedules", "schedule", "name")
	case "relays", "archives", "imports", "namespaces":
		t.Show = r.Link(f.Check)
	case "failovers":
		t.Show, t.Buttons = one("failovers", "failover", "id"), failoverButtons(f)
	case "confidential streams":
		t.Show = r.Link("streams")
	}
	return t
}

// parametersOf are the values of a filter as parameters of a link, by name.
func parametersOf(filter map[string]string) []any {
	var parameters []any
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		parameters = append(parameters, name, filter[name])
	}
	return parameters
}

// jobTrouble is the link to the jobs that a finding is about.
func jobTrouble(r *Request, f admin.Finding) string {
	switch f.Kind {
	case "stalled jobs":
		return r.Link("busy", "trouble", "stalled")
	case "slow jobs":
		return r.Link("busy", "trouble", "slow")
	case "jobs behind jobs that failed": // its page has those behind it; of one that was deleted, the page of a job behind it
		return r.Link("job", "id", f.Subject)
	case "workers that fell silent":
		return r.Link("stuck", "trouble", "lost")
	}
	if f.Subject == "" { // jobs without tags
		return r.Link("stuck", "trouble", "not taken")
	}
	return r.Link("jobs", "state", "ready", "tag", f.Subject)
}

func upperFirst(s string) string {
	if s != "" && 'a' <= s[0] && s[0] <= 'z' {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

// deadTroubles shows the dead letters of the last day by their reasons, and older ones
// in one line.
func deadTroubles(r *Request, kinds reasons, now time.Time) []trouble {
	var all []trouble
	var older int64
	for _, d := range kinds.Reasons {
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
		rank := failing
		if now.Sub(d.LastFailedAt) > diesNow {
			rank = mild
		}
		filter := reasonFilter(d)
		all = append(all, trouble{
			Key: fmt.Sprintf("dead %q", []string{d.Group, d.Subscription, d.Reason, d.Cause}), Rank: rank, Size: d.DeadLetters, Title: title, Text: about,
			Show: r.Link("dead-letters", filter...), Buttons: []ask{{"dead-letters/redrive", "Redrive " + count(d.DeadLetters) + "…", filter}},
		})
	}
	if older > 0 {
		title := things(older, "other dead letter")
		if kinds.MoreReasons {
			title += " or more"
		}
		all = append(all, trouble{
			Key: "older dead letters", Rank: mild, Size: older, Title: template.HTML(title),
			Text: "Redrive those that are owed, and discard the others.", Show: r.Link("dead-letters"),
		})
	}
	return all
}
