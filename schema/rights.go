package schema

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// RolesFor returns the roles of Posthorn that may execute a function of schema posthorn, or
// read a table or view of it: those with the fewest rights. Kind is function, table or view.
// It returns none if only the owner may, or if Posthorn has no such object.
func RolesFor(kind, name string) (roles []string) {
	if ourObjects()[[2]string{kind, name}] == 0 {
		return nil
	}
	if kind == "function" {
		for _, role := range strings.Split(grantedTo()[name], ", ") {
			if role != "" {
				roles = append(roles, "posthorn_"+role)
			}
		}
		return roles
	}
	switch {
	case isListed("if kind in ('consumer', 'admin') then", name):
		return []string{"posthorn_consumer"}
	case !isListed("'revoke select on", name):
		return []string{"posthorn_admin"}
	}
	return nil
}

// ourObjects counts the objects of the embedded schema. It is kept, since it searches all SQL.
var ourObjects = sync.OnceValue(func() map[[2]string]int { return embedded().objects() })

// granted matches the comment of a function that begins with those who may execute it.
var granted = regexp.MustCompile(`(?m)^comment on function posthorn\.(\w+)\([^\n]*\) is\s+'((?:publisher|consumer|admin)(?:, (?:publisher|consumer))*): `)

// grantedTo returns the roles that may execute a function, besides its owner, by its name.
var grantedTo = sync.OnceValue(func() map[string]string {
	roles := map[string]string{}
	for _, step := range embedded().steps(State{Standing: Absent}) {
		for _, match := range granted.FindAllStringSubmatch(step.SQL, -1) {
			roles[match[1]] = match[2]
		}
	}
	return roles
})

// isListed tells whether grant_role has the name of a table or view in the list that follows a
// text, up to a semicolon. So rights are listed once.
func isListed(beginning, name string) bool {
	text, err := files.ReadFile("functions/face/admin/roles.sql")
	if err != nil {
		panic(err) // it is embedded
	}
	_, list, _ := strings.Cut(string(text), beginning)
	list, _, _ = strings.Cut(list, ";")
	return slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }), name)
}
