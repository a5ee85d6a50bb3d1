package doctor

import (
	"regexp"
	"strings"
)

var plainWord = regexp.MustCompile(`^[\pL\pN_./:@%+,=-]+$`)

// word is a name as a shell takes it: in quotes if it needs them.
func word(name string) string {
	if plainWord.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// command is a command line with names as its arguments, for people to copy.
func command(namespace, verb string, names ...string) string {
	line := []string{"posthorn --namespace", word(namespace), verb}
	for _, name := range names {
		if strings.HasPrefix(name, "-") { // or it would be taken for a flag
			line = append(line, "--")
			break
		}
	}
	for _, name := range names {
		line = append(line, word(name))
	}
	return strings.Join(line, " ")
}
