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

// bulkPart is the number of dead letters that one transaction of an action touches.
const bulkPart = 1000

func (p *Pages) deadLetters() {
	p.screen(Screen{Path: "dead-letters", Live: true, Show: listDeadLetters})
	for _, b := range []struct {
		path, name, verb, advice string
		discarded                bool
		do                       func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error)
	}{
		{
			"dead-letters/redrive", "redrive-dead-letters", "Redrive", "Their groups are handed these events again at once, with all attempts. " +
				"Redrive what has become possible again; what fails again comes back here.", false, (*admin.Admin).Redrive,
		},
		{
			"dead-letters/discard", "discard-dead-letters", "Discard", "Discarded dead letters are not shown and not counted any more. " +
				"They can be recovered until the retention of events has passed.", false, (*admin.Admin).Discard,
		},
		{"dead-letters/recover", "recover-dead-letters", "Recover", "They are dead letters again, as if they had not been discarded.", true, (*admin.Admin).Recover},
	} {
		p.bulk(Bulk{
			Path: b.path, Name: b.name, Verb: b.verb, Noun: "dead letter", Advice: b.advice, Back: "dead-letters", Filter: deadLetterFields,
			Match: matchDeadLetters(b.discarded),
			Part: func(ctx context.Context, a *admin.Admin, filter url.Values, after, last int64) (int64, error) {
				return deadLetterPart(ctx, a, filter, b.discarded, after, last, b.do)
			},
		})
	}
	p.deadLetter()
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
		newest, _, err := findDeadLetters(ctx, r, admin.DeadLetterFilter{Discarded: discarded, Limit: 1})
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

// findDeadLetters looks for the newest dead letters until it has found some, or for
// searchFor. It returns the UpTo with which to go on, 0 if it has looked at all.
func findDeadLetters(ctx context.Context, r *Request, f admin.DeadLetterFilter) (letters []admin.BriefDeadLetter, next int64, err error) {
	for began := time.Now(); ; f.UpTo = next {
		letters, next, err = r.Admin.NewestDeadLetters(ctx, f)
		if err != nil || len(letters) > 0 || next == 0 || time.Since(began) > searchFor {
			return letters, next, err
		}
	}
}

// deadLetterPart goes on by ids, since some may stay: redriving one whose condition
// still fails leaves it.
func deadLetterPart(ctx context.Context, a *admin.Admin, filter url.Values, discarded bool, after, last int64,
	do func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error),
) (int64, error) {
	f, err := deadLetterFilter(filter, discarded)
	if err != nil {
		return 0, err
	}
	f.After, f.UpTo, f.Limit = after, last, bulkPart
	ids, err := a.DeadLetterIDs(ctx, f)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	f.IDs, f.Limit = ids, 0
	if _, err = do(a, ctx, f); err != nil || len(ids) < bulkPart {
		return 0, err
	}
	return ids[len(ids)-1], nil
}

// deadLettersPage is the list as its template shows it.
type deadLettersPage struct {
	Discarded bool
	Filter    []any // as names and values in turn
	reasons
	Letters []admin.BriefDeadLetter
	Paging  paging
	Narrow  bool // a filter is given
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
	letters, next, err := findDeadLetters(ctx, r, f)
	if err != nil {
		return nil, err
	}
	page.Letters, page.Paging = pageOf(r, letters, "upto", func(l admin.BriefDeadLetter) any { return l.ID - 1 })
	if page.Paging.Next == "" && next > 0 {
		page.Paging.Next = r.Same("upto", next)
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
