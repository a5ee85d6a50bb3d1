package consume

import (
	"slices"
	"strings"
)

// Matches reports whether a pattern matches the type of an event: * stands for
// one dotted part, > for one or more that follow. The function posthorn.matches
// does the same.
func Matches(pattern, name string) bool {
	for {
		part, rest, more := strings.Cut(pattern, ".")
		if part == ">" && !more {
			return true
		}
		namePart, nameRest, nameMore := strings.Cut(name, ".")
		if part != "*" && part != namePart {
			return false
		}
		if !more || !nameMore {
			return more == nameMore
		}
		pattern, name = rest, nameRest
	}
}

// MatchesAny reports whether one of the patterns matches.
func MatchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Matches(pattern, name) })
}

// ValidPattern reports whether a text can be a pattern.
func ValidPattern(pattern string) bool {
	if len(pattern) > 255 || strings.ContainsFunc(pattern, isControl) {
		return false
	}
	parts := strings.Split(pattern, ".")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "", part == ">" && !last, len(part) > 1 && strings.ContainsAny(part, "*>"):
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) }
