package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is the result of a run.
type report struct {
	Date      string   `json:"date"`
	Postgres  string   `json:"postgres"`
	Cores     int      `json:"cores"`
	Events    int      `json:"events"`
	Rounds    int      `json:"rounds"`
	Held      string   `json:"held"`
	LogEvents int      `json:"log_events"`
	LogGroups int      `json:"log_groups"`
	Jobs      int      `json:"jobs"`
	Results   []result `json:"results"`
}

// result is the result of a row.
type result struct {
	row    row
	rounds []round

	Work    string    `json:"work"`
	Ours    string    `json:"ours"`
	Peer    string    `json:"peer"`
	Unit    string    `json:"unit"`
	Floor   string    `json:"floor"`
	Target  string    `json:"target"`
	Ratios  []float64 `json:"ratios,omitempty"`
	Median  float64   `json:"median,omitempty"`
	OursMed float64   `json:"ours_median,omitempty"`
	PeerMed float64   `json:"peer_median,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Skipped string    `json:"skipped,omitempty"`
}

// sum computes the values that follow from the rounds. The ratio is the median of the
// rounds' ratios and not the ratio of medians, because each side is compared with the
// other side of the same round.
func (r *result) sum() {
	var ours, peer []float64
	for _, one := range r.rounds {
		ours, peer = append(ours, one.ours), append(peer, one.peer)
		r.Ratios = append(r.Ratios, one.ratio())
	}
	r.Median, r.OursMed, r.PeerMed = median(r.Ratios), median(ours), median(peer)
	switch {
	case r.row.floor.sign == "" && r.row.target.sign == "": // only printed
	case !r.row.floor.holds(r.Median):
		r.Verdict = "floor missed"
	case r.row.target.sign == "":
		r.Verdict = "floor met"
	case r.row.target.holds(r.Median):
		r.Verdict = "target met"
	case r.row.floor.sign == "":
		r.Verdict = "target missed"
	default:
		r.Verdict = "floor met, target missed"
	}
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
		fmt.Sprintf("%.3f (%.2f–%.2f)", r.Median, slices.Min(r.Ratios), slices.Max(r.Ratios)), r.Verdict,
		figure(r.OursMed) + r.Unit, figure(r.PeerMed) + r.Unit, measured,
	}
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

func (r *report) heading() string {
	return fmt.Sprintf("%s, PostgreSQL %s, %d cores; median of %d rounds of %s events; transaction held for %s; large log of %s events and %s groups",
		r.Date, r.Postgres, r.Cores, r.Rounds, figure(float64(r.Events)), r.Held, figure(float64(r.LogEvents)), figure(float64(r.LogGroups)))
}

func (r *report) text(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.heading())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, result := range r.Results {
		fmt.Fprintln(table, strings.Join(result.cells(), "\t"))
	}
	return table.Flush()
}

func (r *report) markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s.\n\n", r.heading())
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, result := range r.Results {
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(result.cells(), " | ")); err != nil {
			return err
		}
	}
	return nil
}
