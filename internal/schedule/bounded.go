package schedule

import "slices"

// Bounded returns a search of all schedules with at most that many preemptions, depth first.
// A preemption is a switch away from a session that could go on. A negative number is no bound.
func Bounded(preemptions int) Search { return &bounded{most: preemptions} }

type bounded struct {
	most  int
	path  []option
	depth int
	spent int
}

// option is a choice of the schedule: those that may be taken, and the one that is.
type option struct {
	may []int
	at  int
}

func (b *bounded) Choose(c Choice) int {
	if b.depth == len(b.path) {
		b.path = append(b.path, option{may: b.may(c)})
	}
	o := &b.path[b.depth]
	taken := o.may[o.at]
	if !slices.Contains(c.Enabled, taken) { // two sessions ran at once, and the schedule went another way than before
		b.path = append(b.path[:b.depth], option{may: b.may(c)})
		taken = b.path[b.depth].may[0]
	}
	b.depth++
	if taken != c.Last && slices.Contains(c.Enabled, c.Last) {
		b.spent++
	}
	return taken
}

func (b *bounded) may(c Choice) []int {
	if !slices.Contains(c.Enabled, c.Last) {
		return c.Enabled
	}
	may := []int{c.Last}
	if b.most < 0 || b.spent < b.most {
		for _, i := range c.Enabled {
			if i != c.Last {
				may = append(may, i)
			}
		}
	}
	return may
}

func (b *bounded) Next(*Run) bool {
	b.depth, b.spent = 0, 0
	for len(b.path) > 0 {
		last := &b.path[len(b.path)-1]
		if last.at++; last.at < len(last.may) {
			return true
		}
		b.path = b.path[:len(b.path)-1]
	}
	return false
}
