package main

import (
	"errors"
	"slices"
	"strings"
)

// pattern matches dotted names: * stands for one part, > for all that follow.
type pattern []string

func parsePattern(text string) (pattern, error) {
	parts := strings.Split(text, ".")
	if slices.Contains(parts, "") {
		return nil, usageError{errors.New("a pattern has an empty part"), "write it like order.*, order.> or order.placed"}
	}
	if slices.Contains(parts[:len(parts)-1], ">") {
		return nil, usageError{errors.New("a pattern has > before its end"), "use * for a single part"}
	}
	if slices.ContainsFunc(parts, func(part string) bool { return len(part) > 1 && strings.ContainsAny(part, "*>") }) {
		return nil, usageError{errors.New("a pattern has * or > beside other characters of a part"), "they stand alone between dots, like order.*"}
	}
	return parts, nil
}

func (p pattern) matches(name string) bool {
	parts := strings.Split(name, ".")
	for i, want := range p {
		if i == len(parts) {
			return false
		}
		if want == ">" {
			return true
		}
		if want != "*" && want != parts[i] {
			return false
		}
	}
	return len(parts) == len(p)
}
