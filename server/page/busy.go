package page

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) busy() {
	p.screen(Screen{Path: "busy", Live: true, Show: showBusy})
}

// mostBusy bounds the jobs and leases that are shown.
const mostBusy = 100

// mostBusySearched bounds the jobs and leases among which those of a worker are looked for.
const mostBusySearched = 10_000

// busyPage has the jobs and leases that workers have.
type busyPage struct {
	Trouble string       // stalled, slow, or empty for all
	Worker  string       // whose work it is; empty for all
	Workers [][]busyWork // the work of each
	Leases  bool         // some of it are leases
	More    bool         // jobs or leases that were taken later
}

// busyWork is a job or a lease that a worker has.
type busyWork struct {
	admin.BusyWorker
	Untold []string // the tags that the title of the job does not say
	Why    string   // empty if the line above says the same of the same worker
}

func showBusy(ctx context.Context, r *Request) (*View, error) {
	trouble, worker, most := r.Value("trouble"), r.Value("worker"), mostBusy+1
	if worker != "" {
		most = mostBusySearched
	}
	work, err := r.Admin.BusyWorkersInTrouble(ctx, trouble, most)
	work = slices.DeleteFunc(work, func(w admin.BusyWorker) bool { return worker != "" && w.Worker != worker })
	shown := work[:min(len(work), mostBusy)]
	leases := slices.ContainsFunc(shown, func(w admin.BusyWorker) bool { return w.Kind == "lease" })
	return &View{Title: "Busy", Data: busyPage{trouble, worker, byWorker(shown), leases, len(work) > mostBusy}}, err
}

// byWorker cuts a list, in which the work of each worker stands together.
func byWorker(work []admin.BusyWorker) (workers [][]busyWork) {
	for i, w := range work {
		shown := busyWork{w, untold(w.Name, w.Tags), w.Why}
		if i == 0 || w.Worker != work[i-1].Worker {
			workers = append(workers, nil)
		} else if w.Why == work[i-1].Why {
			shown.Why = ""
		}
		last := len(workers) - 1
		workers[last] = append(workers[last], shown)
	}
	return workers
}

// untold returns those of some tags whose words do not follow each other in a title: "import of tenant 7" says tenant:7 and import.
func untold(title string, tags []string) (untold []string) {
	said := wordsOf(title)
	for _, tag := range tags {
		if !strings.Contains(said, wordsOf(tag)) {
			untold = append(untold, tag)
		}
	}
	return untold
}

// wordsOf returns the letters and digits of a text as small words with a space before and after each.
func wordsOf(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	return " " + strings.Join(words, " ") + " "
}
