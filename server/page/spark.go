package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

const sparkWidth, sparkHeight = 120.0, 22.0

// spark draws numbers as a small line beside a name, for a row of a table. label says the same in words.
func spark(points []float64, label string) template.HTML {
	if len(points) < 2 {
		return ""
	}
	most := math.Max(slices.Max(points), 1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s"><path d="M`, sparkWidth, sparkHeight, template.HTMLEscapeString(label))
	for i, p := range points {
		fmt.Fprintf(&b, "%s %s ", place(float64(i)/float64(len(points)-1)*sparkWidth), place(sparkHeight-1-p/most*(sparkHeight-2)))
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String())
}
