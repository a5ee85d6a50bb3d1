package page

import "testing"

// Each template parses: a program does so no sooner than it shows the page.
func TestTemplatesParse(t *testing.T) {
	t.Parallel()
	if len(templates) < 40 {
		t.Errorf("there are %d templates", len(templates))
	}
	for name, template := range templates {
		if parsed := template(); name != "bare.html" && parsed.Lookup("main") == nil {
			t.Errorf("%s has no content", name)
		}
	}
}
