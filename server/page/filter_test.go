package page

import (
	"os"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// The form of a list has all fields of its filter.
func TestFormsHaveAllFieldsOfTheirFilters(t *testing.T) {
	t.Parallel()
	for file, filter := range map[string]any{
		"dead-letters.html": &admin.DeadLetterFilter{}, "events.html": &admin.EventFilter{}, "jobs.html": &admin.JobFilter{},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range op.Forms(filter) {
			if !strings.Contains(string(text), ` name="`+name+`"`) {
				t.Errorf("%s: there is no field %s", file, name)
			}
		}
	}
}
