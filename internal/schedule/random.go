package schedule

import (
	"math/rand/v2"
	"slices"
)

// Random returns a search of random schedules, the same ones for the same seed. How readily a
// schedule switches is random, too: some faults need long stretches of one session.
func Random(seed uint64) Search {
	r := &random{rand: rand.New(rand.NewPCG(seed, 0))}
	r.Next(nil)
	return r
}

type random struct {
	rand *rand.Rand
	stay float64
}

func (r *random) Choose(c Choice) int {
	if slices.Contains(c.Enabled, c.Last) && r.rand.Float64() < r.stay {
		return c.Last
	}
	return c.Enabled[r.rand.IntN(len(c.Enabled))]
}

func (r *random) Next(*Run) bool {
	r.stay = []float64{0, 0, 0.5, 0.8}[r.rand.IntN(4)]
	return true
}

// Novel returns a search of random schedules that begin as one did that was new: some session
// went on while another stood at a place, as in no schedule before. So a long search comes to
// places that take several unlikely choices.
func Novel(seed uint64) Search {
	return &novel{random: Random(seed).(*random), seen: map[string]bool{}}
}

type novel struct {
	*random
	seen  map[string]bool
	fresh [][]string // schedules that had something new
	lead  []string   // the choices with which this one begins
}

func (n *novel) Choose(c Choice) int {
	if len(n.lead) > 0 {
		i := slices.Index(c.Names, n.lead[0])
		n.lead = n.lead[1:]
		if slices.Contains(c.Enabled, i) {
			return i
		}
		n.lead = nil
	}
	return n.random.Choose(c)
}

func (n *novel) Next(r *Run) bool {
	before := len(n.seen)
	for _, p := range r.Pairs {
		n.seen[p] = true
	}
	if len(n.seen) > before {
		n.fresh = append(n.fresh, r.Chosen)
	}
	n.lead = nil
	if len(n.fresh) > 0 && n.rand.IntN(2) == 0 {
		from := n.fresh[n.rand.IntN(len(n.fresh))]
		n.lead = from[:n.rand.IntN(len(from)+1)]
	}
	return n.random.Next(r)
}
