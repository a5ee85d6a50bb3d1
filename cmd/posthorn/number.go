package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/pflag"
)

// wholeNumber is a flag for whole numbers in a range, which its error names.
type wholeNumber struct {
	value    *int
	min, max int
}

func numberVar(flags *pflag.FlagSet, value *int, name string, initial, least, most int, usage string) {
	*value = initial
	flags.Var(wholeNumber{value, least, most}, name, usage)
}

// limitVar adds --limit, the number of things that a command lists.
func limitVar(flags *pflag.FlagSet, value *int, initial, most int, usage string) {
	numberVar(flags, value, "limit", initial, 1, most, usage)
}

const mostListed = 1_000_000

// mostInSQL is the largest number that a parameter of type int takes.
const mostInSQL = math.MaxInt32

func (n wholeNumber) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < n.min || value > n.max {
		return fmt.Errorf("give a whole number from %d to %d", n.min, n.max)
	}
	*n.value = value
	return nil
}

func (n wholeNumber) String() string {
	if n.value == nil || *n.value == 0 { // pflag calls it on a zero value, to find defaults that need not be printed
		return "0"
	}
	return strconv.Itoa(*n.value)
}

func (wholeNumber) Type() string { return "int" }
