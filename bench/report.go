package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	Run     string   `json:"run"`
	Results []result `json:"results"`

	Samples map[string][]sample `json:"samples,omitempty"` // of the sustained row, by system
}

// result is the result of a row.
type result struct {
	row    row
	rounds []round

	Work   string    `json:"work"`
	Ours   string    `json:"ours"`
	Peer   string    `json:"peer"`
	Unit   string    `json:"unit"`
	Floor  string    `json:"floor"`
	Target string    `json:"target"`
	Ratios []float64 `json:"ratios,omitempty"`
	Run    string    `json:"run"`

	OursValues []float64 `json:"ours_values,omitempty"`
	PeerValues []float64 `json:"peer_values,omitempty"`

	Median  float64 `json:"median,omitempty"`
	OursMed float64 `json:"ours_median,omitempty"`
	PeerMed float64 `json:"peer_median,omitempty"`
	Verdict string  `json:"verdict,omitempty"`
	Skipped string  `json:"skipped,omitempty"`
}

func newResult(r row, run string) result {
	return result{
		row: r, Work: r.work, Ours: r.ours, Peer: r.peer, Unit: r.unit,
		Floor: r.floor.String(), Target: r.target.String(), Run: run,
	}
}

// sum computes the values that follow from the rounds. The ratio is the median of the
// rounds' ratios and not the ratio of medians, because each side is compared with the
// other side of the same round.
func (r *result) sum() {
	for _, one := range r.rounds {
		r.OursValues, r.PeerValues = append(r.OursValues, one.ours), append(r.PeerValues, one.peer)
		r.Ratios = append(r.Ratios, one.ratio())
	}
	r.Median, r.OursMed, r.PeerMed = median(r.Ratios), median(r.OursValues), median(r.PeerValues)
	decided := r.row.target
	switch {
	case r.row.floor.sign == "" && r.row.target.sign == "": // only printed
		return
	case !r.row.floor.holds(r.Median):
		r.Verdict, decided = "floor missed", r.row.floor
	case r.row.target.sign == "":
		r.Verdict, decided = "floor met", r.row.floor
	case r.row.target.holds(r.Median):
		r.Verdict = "target met"
	case r.row.floor.sign == "":
		r.Verdict = "target missed"
	default:
		r.Verdict = "floor met, target missed"
	}
	r.Verdict += r.doubt(decided.ratio)
}

// doubt says that some rounds lie on either side of a limit.
func (r *result) doubt(limit float64) string {
	if slices.Min(r.Ratios) < limit && limit < slices.Max(r.Ratios) {
		return "; noise decides"
	}
	return ""
}

// behind reports whether the other side's figure is the better one.
func (r *result) behind() bool {
	if r.Unit == "/s" {
		return r.Median < 1
	}
	return r.Median > 1
}

var columns = []string{"work", "floor", "where it should go", "ratio (min–max)", "", "ours", "beside", "what was measured"}

func (r result) cells() []string {
	measured := r.Ours
	if r.Peer != "" {
		measured += " / " + r.Peer
	}
	if r.Skipped != "" {
		return []string{r.Work, r.Floor, r.Target, "skipped", r.Skipped, "", "", measured}
	}
	if r.Peer == "" {
		value := fmt.Sprintf("%s%s (%s–%s)", figure(r.Median), r.Unit, figure(slices.Min(r.Ratios)), figure(slices.Max(r.Ratios)))
		return []string{r.Work, r.Floor, r.Target, "–", r.Verdict, value, "–", measured}
	}
	return []string{
		r.Work, r.Floor, r.Target,
		fmt.Sprintf("%s (%s–%s)", ratio(r.Median), ratio(slices.Min(r.Ratios)), ratio(slices.Max(r.Ratios))), r.Verdict,
		figure(r.OursMed) + r.Unit, figure(r.PeerMed) + r.Unit, measured,
	}
}

// ratio formats a ratio with enough digits to compare it.
func ratio(value float64) string {
	if value < 0.01 {
		return fmt.Sprintf("%.4f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// figure formats a number for readers: 1,234,567, or 1.23 for small ones.
func figure(value float64) string {
	if value < 100 && value != math.Trunc(value) {
		return fmt.Sprintf("%.2f", value)
	}
	digits := fmt.Sprintf("%.0f", value)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (o options) heading(version string) string {
	return fmt.Sprintf("%s, PostgreSQL %s, %d cores; %d rounds of %s events; transaction held for %s; fixed rate for %s; lease %s; large log of %s events and %s groups",
		time.Now().UTC().Format(time.DateOnly), version, runtime.NumCPU(), o.rounds, figure(float64(o.events)), o.held, o.sustain, o.lease,
		figure(float64(o.logEvents)), figure(float64(o.logGroups)))
}

func (r *report) text(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", r.Run)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, result := range r.Results {
		fmt.Fprintln(table, strings.Join(result.cells(), "\t"))
	}
	check(table.Flush())
}

func (r *report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s.\n\n", r.Run)
	writeTable(w, r.Results, nil)
}

// writeTable writes results as Markdown, with the numbers of their runs if there are
// several.
func writeTable(w io.Writer, results []result, runs []string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, one := range results {
		cells := one.cells()
		if len(runs) > 1 {
			cells[len(cells)-1] += fmt.Sprintf("; run %d", slices.Index(runs, one.Run)+1)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// writeJSON writes one result in a line, so that a diff shows the rows that have
// changed.
func (r *report) writeJSON(file string) {
	encode := func(part any) string { return string(must(json.Marshal(part))) }
	lines := make([]string, len(r.Results))
	for i, one := range r.Results {
		lines[i] = encode(one)
	}
	document := fmt.Sprintf("{\"run\": %s, \"results\": [\n%s\n], \"samples\": %s}\n", encode(r.Run), strings.Join(lines, ",\n"), encode(r.Samples))
	check(os.WriteFile(file, []byte(document), 0o644))
}
