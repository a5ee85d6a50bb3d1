package page

import (
	"testing"
	"time"
)

// Whatever pages cost, together they take their share of the time; very expensive ones,
// which rest liveRest at most, take little more.
func TestLivePagesRestInProportionToTheirCost(t *testing.T) {
	share := func(costs ...time.Duration) (sum float64) {
		for _, took := range costs {
			sum += float64(took) / float64(restAfter(took, len(costs), livePace))
		}
		return sum
	}
	for name, costs := range map[string][]time.Duration{
		"one":       {20 * time.Millisecond},
		"different": {time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond},
		"ten": {
			5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 40 * time.Millisecond,
			50 * time.Millisecond, 60 * time.Millisecond, 80 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond,
		},
	} {
		if s := share(costs...); s > liveShare*1.001 {
			t.Errorf("%s: they take %.2f %% of the time", name, 100*s)
		}
	}
	expensive := make([]time.Duration, 10)
	for i := range expensive {
		expensive[i] = 300 * time.Millisecond
	}
	if s := share(expensive...); s > 0.0101 {
		t.Errorf("ten expensive pages take %.2f %% of the time", 100*s)
	}
	if r := restAfter(time.Microsecond, 1, livePace); r != livePace {
		t.Errorf("a cheap page rests %s, not %s", r, livePace)
	}
}
