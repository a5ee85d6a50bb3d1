package promise

import (
	"fmt"

	"github.com/posthorn/posthorn/internal/schedule"
)

// SaveStep is a call that saves the result of a step of the session's job.
type SaveStep struct{ Name string }

func (s SaveStep) ended(m *Model, c *schedule.Call) {
	j, n := m.jobs[number(c.Vars["job"])], number(c.Vars["attempt"])
	c.OnEnd(func(schedule.Moment) {
		for _, a := range j.attempts {
			if a.number > n && !a.undone {
				m.fail(waits, "attempt %d at job %s saved a step, though %s has attempt %d", n, j.label, a.worker, a.number)
			}
		}
		j.steps = append(j.steps, s.Name)
	}, nil)
}

func (SaveStep) refused(c *schedule.Call) { delete(c.Vars, "job") }

// knowsSteps checks that a claim has the steps that earlier attempts have saved.
func (m *Model) knowsSteps(c *schedule.Call, j *job, row []any) {
	if len(row) < 3 {
		return
	}
	known, _ := row[2].(map[string]any)
	for _, name := range j.steps {
		if _, has := known[name]; !has {
			m.fail(waits, "%s was handed job %s with the steps %s, without %s", c.Session, j.label, fmt.Sprint(known), name)
		}
	}
}
