package main

import (
	"bytes"
	"encoding/json"
	"errors"
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

func (r *report) text(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.Run)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, result := range r.Results {
		fmt.Fprintln(table, strings.Join(result.cells(), "\t"))
	}
	return table.Flush()
}

func (r *report) markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s.\n\n", r.Run)
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, result := range r.Results {
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(result.cells(), " | ")); err != nil {
			return err
		}
	}
	return nil
}

// writeJSON writes one result in a line, so that a diff shows the rows that have
// changed.
func writeJSON(file string, r *report) error {
	var out bytes.Buffer
	encode := func(name string, value any, end string) error {
		document, err := json.Marshal(value)
		fmt.Fprintf(&out, "%s%s%s\n", name, document, end)
		return err
	}
	err := encode(`{"run": `, r.Run, `, "results": [`)
	for i, one := range r.Results {
		end := ","
		if i+1 == len(r.Results) {
			end = ""
		}
		err = errors.Join(err, encode("", one, end))
	}
	if err := errors.Join(err, encode(`], "samples": `, r.Samples, "}")); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
