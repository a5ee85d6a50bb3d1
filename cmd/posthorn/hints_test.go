package main

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestHintsNameCommands(t *testing.T) {
	t.Parallel()
	for hint, want := range map[string]string{
		"Make it first: select posthorn.define_namespace('shop'); the namespace is the first argument: write 'default' there if it was left out.": "Make it first: posthorn namespaces define shop",
		"Make it first: select posthorn.define_group('default', 'my mails');":                                                                     "Make it first: posthorn --namespace default groups define 'my mails'",
		"See: select name from posthorn.webhook_status; or make it: select posthorn.create_webhook(…);":                                           "See: posthorn webhooks list; or make it: posthorn webhooks create",
		"Run posthorn rebase (or select posthorn.rebase();) once; publishing works meanwhile.":                                                    "Run posthorn rebase once; publishing works meanwhile.",
		"Use the id that enqueue returned.": "Use the id that enqueue returned.",
	} {
		if got := inCommands(hint); got != want {
			t.Errorf("%s\nbecomes: %s", hint, got)
		}
	}
}

var (
	statementInHint = regexp.MustCompile(`(hint = |'See: ).*\bselect .*posthorn\.`)
	// No command looks at the settings or at the functions for conditions. What a superuser has to do is SQL.
	withoutCommand = regexp.MustCompile(`posthorn\.(config|condition_functions);|As a superuser`)
)

// Each statement in a hint of the schema has its command.
func TestEachHintHasItsCommand(t *testing.T) {
	t.Parallel()
	found := 0
	functions := os.DirFS("../../schema/functions")
	err := fs.WalkDir(functions, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".sql") {
			return err
		}
		source, err := fs.ReadFile(functions, path)
		for _, line := range statementInHint.FindAllString(string(source), -1) {
			found++
			// The whole line, since the pattern ends with the first name.
			_, rest, _ := strings.Cut(string(source), line)
			rest, _, _ = strings.Cut(rest, "\n")
			hint := inCommands(strings.ReplaceAll(line+rest, "%L", "'x'"))
			if statementInHint.MatchString(hint) && !withoutCommand.MatchString(hint) {
				t.Errorf("%s: %s", path, hint)
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("%d hints, %v", found, err)
	}
}
