package testsize

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every two values of two columns stand together in a row, with at least a third fewer rows
// than the product has where there are three columns or more.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, values := range [][]int{{3}, {2, 3}, {2, 2, 2}, {6, 2, 200}, {3, 3, 3, 3}, {5, 1, 4, 2, 3}, {7, 6, 5, 4, 3, 2}, {0, 2}} {
		t.Run(fmt.Sprint(values), func(t *testing.T) {
			t.Parallel()
			rows := pairs(values)
			missing := allPairs(values)
			for _, row := range rows {
				for column, value := range row {
					if value < 0 || value >= values[column] {
						t.Errorf("row %v has no such value in column %d", row, column)
					}
				}
				for _, p := range pairsOf(row) {
					delete(missing, p)
				}
			}
			if len(missing) > 0 {
				t.Errorf("of %v, these pairs are in no row: %v", values, missing.sorted())
			}
			if full := len(product(values)); len(values) > 2 && len(rows) > full*2/3 {
				t.Errorf("%d rows for pairs, and %d for all", len(rows), full)
			}
			if diff := cmp.Diff(rows, pairs(values)); diff != "" {
				t.Errorf("the rows differ from call to call:\n%s", diff)
			}
		})
	}
}

func TestProduct(t *testing.T) {
	t.Parallel()
	want := [][]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}
	if diff := cmp.Diff(want, product([]int{2, 3})); diff != "" {
		t.Error(diff)
	}
}

func TestRows(t *testing.T) {
	for all, want := range map[string]int{"": 4, "yes": 8} {
		t.Setenv(Variable, all)
		if rows := Rows(2, 2, 2); len(rows) != want {
			t.Errorf("with %s=%q there are %d rows, want %d", Variable, all, len(rows), want)
		}
	}
}
