package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/op"
)

// noOperations are commands that are no operations, and why.
var noOperations = map[string]string{
	"posthorn streams make-key":  "it makes a file on this machine",
	"posthorn failovers compare": "it asks a database of which only the caller has the URL",
	"posthorn archive verify":    "it reads object storage for long, and shows the progress",
	"posthorn archive replay":    "it reads object storage for long, and shows the progress",
	"posthorn archive restore":   "it reads object storage for long, and shows the progress",
}

// Each operation has its command, with its flags and texts, or a reason. Each command of a
// topic of package op is one of its operations.
func TestOperationsHaveCommands(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	known := map[*cobra.Command]bool{}
	for _, o := range op.All() {
		d := o.Describe()
		words := strings.Fields(d.Command)
		cmd, _, err := root.Find(words[:2])
		found := err == nil && cmd.Name() == words[1]
		if reason := d.Without[op.Command]; reason != "" || !found {
			if found == (reason != "") {
				t.Errorf("%s: posthorn %s: found %v, although the reason is %q", d.Name, d.Command, found, reason)
			}
			continue
		}
		if words[0]+" "+cmd.Use != d.Command && known[cmd] && strings.HasPrefix(d.Command, cmd.CommandPath()[len("posthorn "):]+" ") {
			continue // it is that of the operation on many things, with one that is named
		}
		known[cmd] = true
		if usage := words[0] + " " + cmd.Use; usage != d.Command || cmd.Short != d.Does || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: the command is %q, %q, with the example %q", d.Name, usage, cmd.Short, cmd.Example)
		}
		for _, f := range op.Fields(o.New()) {
			if f.Flag != "" && cmd.Flags().Lookup(f.Flag) == nil {
				t.Errorf("%s lacks --%s", cmd.CommandPath(), f.Flag)
			}
		}
		if asks := cmd.Flags().Lookup("yes") != nil; asks != o.Asks() && d.ByHand[op.Command] == "" {
			t.Errorf("%s: --yes is there: %v; the operation asks: %v", cmd.CommandPath(), asks, o.Asks())
		}
	}
	for _, o := range op.All() {
		if o.Describe().Without[op.Command] != "" {
			continue
		}
		topic, _, err := root.Find(strings.Fields(o.Describe().Command)[:1])
		if err != nil {
			t.Fatal(err)
		}
		for _, cmd := range topic.Commands() {
			if path := cmd.CommandPath(); !known[cmd] && noOperations[path] == "" {
				known[cmd] = true
				t.Errorf("%s is no operation of package op", path)
			}
		}
	}
}
