package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Pages together take their share of the time, except for expensive ones, which rest liveRest at most.
func TestLivePagesRestInProportionToTheirCost(t *testing.T) {
	share := func(costs ...time.Duration) (sum float64) {
		for _, took := range costs {
			sum += float64(took) / float64(restAfter(took, len(costs), livePace))
		}
		return sum
	}
	for name, costs := range map[string][]time.Duration{
		"one":       {20 * time.Millisecond},
		"different": {time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond},
		"ten":       {1e6, 2e6, 3e6, 4e6, 4e6, 4e6, 3e6, 2e6, 1e6, 4e6},
	} {
		if s := share(costs...); s > liveShare*1.001 {
			t.Errorf("%s: they take %.2f %% of the time", name, 100*s)
		}
	}
	if r := restAfter(10*time.Second, 10, livePace); r != liveRest {
		t.Errorf("ten expensive pages rest %s, not %s", r, liveRest)
	}
	if r := restAfter(time.Microsecond, 1, livePace); r != livePace {
		t.Errorf("a cheap page rests %s, not %s", r, livePace)
	}
}

// A page whose queries took long says so when it is there: the answer of the first of them is old.
func TestPageOfASlowDatabaseIsOldAtOnce(t *testing.T) {
	t.Parallel()
	page := func(took time.Duration) string {
		return (&Request{}).shown(&View{Template: "jobs.html", began: time.Now().Add(-took)}, "").Late
	}
	if late := page(40 * time.Second); late != "The database answers slowly: this page is 40 s old." {
		t.Errorf("after 40 seconds the page says %q", late)
	}
	if late := page(time.Second); late != "" {
		t.Errorf("after one second the page says %q", late)
	}
	if late := (&Request{}).shown(&View{Template: "jobs.html"}, "").Late; late != "" {
		t.Errorf("the answer of an action says %q", late)
	}
}

// A page that may become too old before the next rendering is there says so, and no other.
func TestPageThatBecomesOldSaysSo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		latest rendering
		told   bool
	}{
		"of a slow database": {rendering{began: now.Add(-12 * time.Second), next: now}, true},
		"of a quick one":     {rendering{began: now.Add(-8 * time.Second), next: now}, false},
		"that failed":        {rendering{next: now}, false},
	} {
		answer := httptest.NewRecorder()
		told, goOn := (&Pages{}).rest(t.Context(), &stream{w: answer, control: http.NewResponseController(answer)}, c.latest)
		if said := strings.Contains(answer.Body.String(), "The database answers slowly: this page is 12 s old."); told != c.told || said != c.told || !goOn {
			t.Errorf("a page %s: told %v, go on %v: %s", name, told, goOn, answer.Body.String())
		}
	}
}
