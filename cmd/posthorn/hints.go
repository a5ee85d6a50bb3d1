package main

import "regexp"

// statementsInHints are those that hints of SQL functions name, for all who call the functions, and the commands that do the
// same. Only this face knows that its user has the commands.
var statementsInHints = []struct {
	statement *regexp.Regexp
	command   string // with the names of the statement
}{
	{regexp.MustCompile(`select posthorn\.define_namespace\(('[^']*')\);.*`), "posthorn namespaces define $1"},
	{regexp.MustCompile(`open_namespace\(('[^']*')\)\.`), "posthorn namespaces open $1"},
	{regexp.MustCompile(`select posthorn\.close_namespace\(('[^']*')\); select posthorn\.await_closed\('[^']*'\);`), "posthorn namespaces close $1"},
	{regexp.MustCompile(`select posthorn\.define_group\(('[^']*'), ('[^']*')\);`), "posthorn --namespace $1 groups define $2"},
	{regexp.MustCompile(`select name from posthorn\.subscriptions where group_id = ('[^']*');`), "posthorn groups show $1"},
	{regexp.MustCompile(`select name from posthorn\.schedules;`), "posthorn schedules list"},
	{regexp.MustCompile(`select id, name from posthorn\.list_tokens\(\);`), "posthorn tokens list"},
	{regexp.MustCompile(`select name from posthorn\.webhook_status;`), "posthorn webhooks list;"},
	{regexp.MustCompile(`select posthorn\.create_webhook\(…\);`), "posthorn webhooks create"},
	{regexp.MustCompile(`select posthorn\.change_webhook\(…\)\.`), "posthorn webhooks change"},
	{regexp.MustCompile(`select posthorn\.rotate_webhook_secret\(…\)`), "posthorn webhooks rotate"},
	{regexp.MustCompile(`select posthorn\.enable_webhook\(('[^']*'), ('[^']*')\);`), "posthorn --namespace $1 webhooks enable $2"},
	{regexp.MustCompile(` \(or select posthorn\.rebase\(\);\)`), ""},
}

// plainName is a name in quotes that a shell does not need.
var plainName = regexp.MustCompile(`'([\w.:-]+)'`)

// inCommands returns a hint with commands instead of statements.
func inCommands(hint string) string {
	for _, s := range statementsInHints {
		hint = s.statement.ReplaceAllStringFunc(hint, func(found string) string {
			return plainName.ReplaceAllString(s.statement.ReplaceAllString(found, s.command), "$1")
		})
	}
	return hint
}
