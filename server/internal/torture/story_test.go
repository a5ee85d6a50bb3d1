package torture

import (
	"fmt"
	"strings"
	"testing"
)

type job struct {
	ID         int64
	Status     string
	RetryCount int `json:"retry_count"`
	MaxRetries int `json:"max_retries"`
	Logs       []entry
}

type entry struct {
	ID           int64
	WorkerID     string `json:"worker_id"`
	Action       string
	ErrorMessage string `json:"error_message"`
}

// story follows the log of a job, entry by entry.
type story struct {
	holder            string
	started           bool
	failures, silence int
	last              entry
	ended             string // how it ended for certain
}

// impossible says what cannot have happened to a job; "" for nothing.
func (j job) impossible() string {
	var s story
	for _, e := range j.Logs {
		if wrong := s.next(e, j); wrong != "" {
			return wrong
		}
		s.last = e
	}
	switch {
	case j.Status != "COMPLETED" && j.Status != "FAILED":
		return "it did not end"
	case s.last.Action != j.Status:
		return "its status is not what was logged last"
	case j.RetryCount != s.failures:
		return fmt.Sprintf("retry_count is %d after %d failures", j.RetryCount, s.failures)
	}
	return ""
}

func (s *story) next(e entry, j job) string {
	holds := e.WorkerID != "" && e.WorkerID == s.holder
	switch {
	case s.ended != "":
		return e.Action + " after the end"
	case e.ID <= s.last.ID:
		return "its log is not in order"
	case e.Action == "PICKED" && s.holder != "":
		return "picked while another had it"
	case e.Action == "PICKED":
		s.holder, s.started = e.WorkerID, false
	case e.Action == "FAILED" && !holds:
		if s.last.Action != "EXPIRED" || s.silence < max(3, j.MaxRetries) || e.WorkerID != s.last.WorkerID {
			return "failed by " + e.WorkerID + ", who does not have it"
		}
		s.ended = "FAILED"
	case !holds:
		return e.Action + " by " + e.WorkerID + ", who does not have it"
	case e.Action == "STARTED" && s.started:
		return "started twice"
	case e.Action == "STARTED":
		s.started = true
	case e.Action == "COMPLETED":
		s.ended = "COMPLETED"
	case e.Action == "FAILED":
		s.holder = ""
		if s.failures++; s.failures == j.MaxRetries {
			s.ended = "FAILED"
		}
	case e.Action == "EXPIRED":
		s.holder = ""
		s.silence++
	case e.Action == "RESET": // its worker had gone while the job was handed to it
		s.holder = ""
	default:
		return "nobody does that here: " + e.Action
	}
	return ""
}

// A story that cannot be is found to be so.
func TestImpossibleStories(t *testing.T) {
	t.Parallel()
	tell := func(status string, retries int, log string) string {
		j := job{Status: status, RetryCount: retries, MaxRetries: 2}
		for i, words := range strings.Split(log, ",") {
			var e entry
			e.ID = int64(i + 1)
			_, _ = fmt.Sscan(words, &e.Action, &e.WorkerID)
			j.Logs = append(j.Logs, e)
		}
		return j.impossible()
	}
	for _, log := range []string{"PICKED a,COMPLETED a", "PICKED a,STARTED a,EXPIRED a,PICKED b,COMPLETED b", "PICKED a,RESET a,PICKED a,COMPLETED a"} {
		if wrong := tell("COMPLETED", 0, log); wrong != "" {
			t.Errorf("%s: %s", log, wrong)
		}
	}
	if wrong := tell("FAILED", 0, "PICKED a,EXPIRED a,PICKED a,EXPIRED a,PICKED a,EXPIRED a,FAILED a"); wrong != "" {
		t.Error(wrong)
	}
	for _, log := range []string{
		"COMPLETED a", "PICKED a,COMPLETED b", "PICKED a,PICKED b,COMPLETED b", "PICKED a,COMPLETED a,COMPLETED a", "PICKED a,EXPIRED a,COMPLETED a",
		"PICKED a,STARTED a,STARTED a,COMPLETED a", "PICKED a,EXPIRED a,FAILED a,PICKED a,COMPLETED a", "PICKED a,FAILED a,PICKED a,COMPLETED a", "PICKED a,EXPIRED a",
	} {
		if tell("COMPLETED", 0, log) == "" {
			t.Errorf("%s passes", log)
		}
	}
}
