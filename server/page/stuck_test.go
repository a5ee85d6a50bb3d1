package page

import (
	"slices"
	"testing"

	"github.com/posthorn/posthorn/admin"
)

// The jobs of all reasons are added up, and one that is the first for two reasons counts once.
func TestStuckInAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jobs []admin.StuckJob
		want string
	}{
		{nil, ""},
		{[]admin.StuckJob{{ID: 1}}, "1 job is stuck"},
		{[]admin.StuckJob{{ID: 1, Others: 6}, {ID: 8, Others: 33}}, "41 jobs are stuck"},
		{[]admin.StuckJob{{ID: 1, Others: 6}, {ID: 1, Others: 8}, {ID: 1}}, "9 jobs are stuck"},
		{[]admin.StuckJob{{ID: 1, Others: 100}, {ID: 2}}, "at least 102 jobs are stuck"},
	} {
		if got := stuckInAll(c.jobs); got != c.want {
			t.Errorf("%+v: %q, not %q", c.jobs, got, c.want)
		}
	}
}

// The others of a job are those behind it, or those that are stuck as it is.
func TestOtherStuck(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]admin.StuckJob{
		"": {}, "+1 more": {State: "ready", Others: 1}, "+99 or more": {State: "paused", Others: 99}, "+98 more": {Others: 98}, "+19 or more": {Trouble: "lost", Others: 19}, "+6 behind": {State: "failed", Others: 6},
	} {
		if got := otherStuck(j); got != want {
			t.Errorf("%+v: %q, not %q", j, got, want)
		}
	}
}

// A tag whose words stand in the title is not shown again.
func TestUntoldTags(t *testing.T) {
	t.Parallel()
	got := untold("Import of tenant 7, part 2", []string{"import", "tenant:7", "tenant:77", "art", "part_2", "urgent"})
	if want := []string{"tenant:77", "art", "urgent"}; !slices.Equal(got, want) {
		t.Errorf("the tags are %q, not %q", got, want)
	}
}
