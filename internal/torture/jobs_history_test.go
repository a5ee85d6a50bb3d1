package torture

// job is a job with its log, as the server returns it.
type job struct {
	ID         int64
	Status     string
	RetryCount int `json:"retry_count"`
	MaxRetries int `json:"max_retries"`
	Logs       []entry
}

type entry struct {
	ID       int64
	WorkerID string `json:"worker_id"`
	Action   string
}

// history is the state of a job while its log is checked, entry by entry.
type history struct {
	holder            string
	started           bool
	failures, silence int
	last              entry
	ended             string // the certain end of the job
}

// check reports a log that is impossible. worker is the worker that received a
// confirmation of completing the job, or empty.
func (j job) check(f *findings, worker string) {
	wrong := func(kind, why string) { f.report(kind, "%s: %+v", why, j) }
	var s history
	for _, e := range j.Logs {
		if kind, why := s.next(e, j); kind != "" {
			wrong(kind, why)
			return
		}
		s.last = e
	}
	switch {
	case j.Status != "COMPLETED" && j.Status != "FAILED":
		wrong(stuck, "it did not end")
	case s.last.Action != j.Status:
		wrong(misordered, "its status is not the last entry of its log")
	case j.RetryCount != s.failures:
		wrong(overdone, "its retry_count is not the number of its failures")
	case worker != "" && (j.Status != "COMPLETED" || s.last.WorkerID != worker):
		wrong(lost, worker+" was told that it has completed the job")
	}
}

// next returns the kind of violation that an entry of the log is, and the reason.
func (s *history) next(e entry, j job) (kind, why string) {
	holds := e.WorkerID != "" && e.WorkerID == s.holder
	switch {
	case e.Action == "RESET" && e.WorkerID == "" && s.holder == "" && s.last.Action == "FAILED" && e.ID > s.last.ID: // others wait for it
		*s = history{}
	case s.ended != "":
		return doubled, e.Action + " after the end"
	case e.ID <= s.last.ID:
		return misordered, "its log is not in order"
	case e.Action == "PICKED" && s.holder != "":
		return unfenced, "picked while another worker had it"
	case e.Action == "PICKED":
		s.holder, s.started = e.WorkerID, false
	case e.Action == "FAILED" && !holds:
		if s.last.Action != "EXPIRED" || e.WorkerID != s.last.WorkerID {
			return unfenced, "failed by " + e.WorkerID + ", which does not have it"
		}
		if s.silence < max(3, j.MaxRetries) {
			return overdone, "failed before it expired often enough"
		}
		s.ended = "FAILED"
	case !holds:
		return unfenced, e.Action + " by " + e.WorkerID + ", which does not have it"
	case e.Action == "STARTED" && s.started:
		return doubled, "started twice"
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
	case e.Action == "SNOOZED": // behind a sleep, it has all its retries again
		s.holder, s.failures, s.silence = "", 0, 0
	case e.Action == "RESET": // its worker died while the job was handed to it
		s.holder = ""
	default:
		return misordered, e.Action + " is not an action of this test"
	}
	return "", ""
}
