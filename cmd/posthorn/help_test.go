package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/test/testgolden"
)

//go:generate go test -run ^TestHelpChangesByAdditions$ . -update

// The help of each command is in a file. It changes by additions only: scripts call the
// commands. Any other change stands in CHANGELOG.md.
func TestHelpChangesByAdditions(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	testgolden.Check(t, "testdata/help/posthorn.md", helpOf(t, root))
	for _, cmd := range root.Commands() {
		var all strings.Builder
		eachCommand(cmd, func(cmd *cobra.Command) { all.WriteString(helpOf(t, cmd)) })
		testgolden.Check(t, "testdata/help/"+cmd.Name()+".md", all.String())
	}
}

// eachCommand calls a function for a command and those that it holds.
func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, do)
	}
}

func helpOf(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, &out, &errs); code != 0 {
		t.Fatalf("%q ended with %d: %s", args, code, &errs)
	}
	return "# " + cmd.CommandPath() + "\n\n" + out.String() + "\n"
}
