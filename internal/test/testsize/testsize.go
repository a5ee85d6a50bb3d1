// Package testsize decides how much a test does that could do more: a slice of it for make
// test, which is run often, and all of it for make test-all, which runs before a change
// lands.
package testsize

import (
	"maps"
	"os"
	"slices"
)

// Variable is the environment variable that make test-all sets.
const Variable = "POSTHORN_TEST_ALL"

// All reports whether this run is that of make test-all.
func All() bool { return os.Getenv(Variable) != "" }

// Of returns few, or many in a run of make test-all.
func Of[T any](few, many T) T {
	if All() {
		return many
	}
	return few
}

// Rows returns the rows of a table that a test is to try, given how many values each
// column has: each row has an index for each column. In make test-all they are the full
// product. Otherwise any two values of two columns stand together in at least one row, so
// that a fault that two values cause is found.
func Rows(values ...int) [][]int {
	return Of(pairs, product)(values)
}

// product returns all rows.
func product(values []int) [][]int {
	rows := [][]int{{}}
	for _, n := range values {
		var longer [][]int
		for _, row := range rows {
			for value := range n {
				longer = append(longer, append(append([]int{}, row...), value))
			}
		}
		rows = longer
	}
	return rows
}

// pair is two values of two columns.
type pair struct{ left, leftValue, right, rightValue int }

// pairs returns few rows that have every pair. They are the same in each run. It is greedy:
// each row begins with a pair that is missing, and takes in each other column the value
// that adds the most missing pairs.
func pairs(values []int) [][]int {
	if len(values) < 2 {
		return product(values)
	}
	missing := allPairs(values)
	var rows [][]int
	for _, first := range missing.sorted() {
		if !missing[first] {
			continue
		}
		row := missing.rowWith(first, values)
		for _, p := range pairsOf(row) {
			delete(missing, p)
		}
		rows = append(rows, row)
	}
	return rows
}

type pairSet map[pair]bool

func allPairs(values []int) pairSet {
	all := pairSet{}
	for right := range values {
		for left := range right {
			for leftValue := range values[left] {
				for rightValue := range values[right] {
					all[pair{left, leftValue, right, rightValue}] = true
				}
			}
		}
	}
	return all
}

// sorted returns the pairs in an order that does not depend on the map's.
func (s pairSet) sorted() []pair {
	return slices.SortedFunc(maps.Keys(s), func(a, b pair) int {
		return slices.Compare([]int{a.left, a.right, a.leftValue, a.rightValue}, []int{b.left, b.right, b.leftValue, b.rightValue})
	})
}

// unset is the value of a column that is not chosen yet.
const unset = -1

func (s pairSet) rowWith(first pair, values []int) []int {
	row := slices.Repeat([]int{unset}, len(values))
	row[first.left], row[first.right] = first.leftValue, first.rightValue
	for column := range row {
		if row[column] == unset {
			row[column] = s.best(row, column, values[column])
		}
	}
	return row
}

// best returns the value for a column with which the row has the most missing pairs.
func (s pairSet) best(row []int, column, values int) int {
	best, most := 0, -1
	for value := range values {
		row[column] = value
		added := 0
		for _, p := range pairsOf(row) {
			if s[p] && (p.left == column || p.right == column) {
				added++
			}
		}
		if added > most {
			best, most = value, added
		}
	}
	return best
}

func pairsOf(row []int) []pair {
	var all []pair
	for right := range row {
		for left := range right {
			if row[left] != unset && row[right] != unset {
				all = append(all, pair{left, row[left], right, row[right]})
			}
		}
	}
	return all
}
