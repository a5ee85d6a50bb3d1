package page

import "testing"

// Each template parses: a program does so no sooner than it shows the page.
func TestTemplatesParse(t *testing.T) {
	t.Parallel()
	if len(templates) < 40 {
		t.Errorf("there are %d templates", len(templates))
	}
	for name, template := range templates {
		if template().Tree == nil {
			t.Errorf("%s is empty", name)
		}
	}
}
