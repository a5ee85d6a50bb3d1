package page

import (
	"context"
	"net/url"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// deadLetterFields are the parameters that say which dead letters are meant.
var deadLetterFields = op.Forms(&admin.DeadLetterFilter{})

func (p *Pages) deadLetters() {
	p.screen(Screen{Path: "dead-letters", Live: true, Show: listDeadLetters})
	p.screen(Screen{Path: "dead-letter", Under: "dead-letters", Show: showDeadLetter})
	for _, action := range op.DeadLetterActions {
		p.bulk(bulkOf(action))
		p.operation(action.Single(), func(r *Request) string {
			switch {
			case !action.Keeps:
				return r.Link("dead-letters", "discarded", "true")
			case action.Discarded:
				return r.Link("dead-letter", "id", r.Value("id"))
			}
			return r.Link("dead-letters", "group", r.Value("group"))
		})
	}
	p.operationTo(op.RedriveEditedDeadLetter, func(r *Request, out any) string { return r.Link("event", "id", out.(op.Redriven).Event) })
	p.screen(Screen{Path: "dead-letter/edit", Under: "dead-letters", Scope: "admin", Show: editDeadLetter})
}

// bulkOf is an action on all dead letters that match a filter.
func bulkOf(action op.DeadLetterAction) Bulk {
	about := action.Many().Describe()
	var list []any
	if action.Discarded {
		list = []any{"discarded", "true"}
	}
	return Bulk{
		Path: about.Page, Name: about.Name, Scope: string(about.Scope), Verb: sentence(action.Verb), Noun: about.Topic.One, Advice: action.More,
		Back: "dead-letters", BackWith: list, Filter: deadLetterFields,
		Match: matchDeadLetters(action.Discarded),
		Part: func(ctx context.Context, a *admin.Admin, filter url.Values, after, last int64) (int64, error) {
			f, err := deadLetterFilter(filter, action.Discarded)
			if err != nil {
				return 0, err
			}
			return action.Part(ctx, a, f, after, last)
		},
	}
}

// deadLetterFilter reads the parameters of a filter.
func deadLetterFilter(filter url.Values, discarded bool) (admin.DeadLetterFilter, error) {
	f := admin.DeadLetterFilter{Discarded: discarded}
	return f, (&Request{values: filter}).Fill(&f)
}

// reasonFilter has the parameters that select exactly the dead letters of one row.
func reasonFilter(d admin.DeadLetterReason) []any {
	handler := []any{"subscription", d.Subscription}
	if d.Subscription == "" {
		handler = []any{"unsubscribed", "true"}
	}
	return append([]any{"group", d.Group, "reason", d.Reason, "cause", d.Cause}, handler...)
}

func matchDeadLetters(discarded bool) func(context.Context, *Request, url.Values) (matched, error) {
	return func(ctx context.Context, r *Request, filter url.Values) (m matched, err error) {
		f, err := deadLetterFilter(filter, discarded)
		if err != nil {
			return m, err
		}
		// Looked for as long as the request may take: the question must not say that there is
		// nothing after a short search.
		newest, _, err := findDeadLetters(ctx, r, admin.DeadLetterFilter{Discarded: discarded, Limit: 1}, r.pages.Timeout)
		if err != nil || len(newest) == 0 {
			return m, err
		}
		m.Last = newest[0].ID
		f.UpTo, f.Limit = m.Last, mostMatched
		m.N, err = r.Admin.CountDeadLetters(ctx, f)
		m.More = m.N == mostMatched
		return m, err
	}
}

// findDeadLetters looks for the newest dead letters until it has found some, or until
// patience is over. It returns the UpTo with which to go on, 0 if it has looked at all.
func findDeadLetters(ctx context.Context, r *Request, f admin.DeadLetterFilter, patience time.Duration) (letters []admin.BriefDeadLetter, next int64, err error) {
	return op.Until(patience, f.UpTo, func(upTo int64) ([]admin.BriefDeadLetter, int64, error) {
		f.UpTo = upTo
		return r.Admin.NewestDeadLetters(ctx, f)
	})
}

// deadLettersPage is the list as its template shows it.
type deadLettersPage struct {
	Discarded bool
	Filter    []any // as names and values in turn
	reasons
	Letters []admin.BriefDeadLetter
	Paging  paging
	Narrow  bool // a filter is given
	Search  further
}

// reasons are the kinds of dead letters that failed last.
type reasons struct {
	Reasons     []admin.DeadLetterReason
	MoreReasons bool // others failed earlier, and are left out
}

// find finds the kinds of a group, or of all groups.
func (k *reasons) find(ctx context.Context, r *Request, group string) (err error) {
	k.Reasons, err = r.Admin.DeadLetterReasons(ctx, group, someReasons+1)
	if k.MoreReasons = len(k.Reasons) > someReasons; k.MoreReasons {
		k.Reasons = k.Reasons[:someReasons]
	}
	return err
}

func listDeadLetters(ctx context.Context, r *Request) (*View, error) {
	page := deadLettersPage{Discarded: r.Value("discarded") == "true"}
	filter := r.Filter(deadLetterFields...)
	page.Filter, page.Narrow = pairs(filter), len(filter) > 0
	f, err := deadLetterFilter(filter, page.Discarded)
	if err != nil {
		return nil, err
	}
	if f.UpTo, err = r.optionalNumber("upto"); err != nil {
		return nil, err
	}
	f.Limit = pageLength + 1
	letters, next, err := findDeadLetters(ctx, r, f, searchFor)
	if err != nil {
		return nil, err
	}
	page.Letters, page.Paging = pageOf(r, letters, "upto", func(l admin.BriefDeadLetter) any { return l.ID - 1 })
	if page.Paging.Next == "" && next > 0 {
		page.Paging.Next = r.Same("upto", next)
		page.Search = further{Link: page.Paging.Next, At: next, GoesOn: len(letters) == 0}
	}
	if !page.Discarded && f.UpTo == 0 {
		err = page.find(ctx, r, f.Group)
	}
	title := "Dead letters"
	if page.Discarded {
		title = "Discarded dead letters"
	}
	return &View{Title: title, Data: page}, err
}
