package schedule

import (
	"slices"
	"strings"
)

// Replay returns a search of one schedule: the names of the sessions in the order in which
// they go on, with spaces between them. A name whose session waits is left out; when the names
// are used up, the first session that can goes on.
func Replay(names string) Search { return &replay{strings.Fields(names)} }

type replay struct{ left []string }

func (p *replay) Choose(c Choice) int {
	for len(p.left) > 0 {
		i := slices.Index(c.Names, p.left[0])
		p.left = p.left[1:]
		if slices.Contains(c.Enabled, i) {
			return i
		}
	}
	return c.Enabled[0]
}

func (p *replay) Next(*Run) bool { return false }
