package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// app is the state that the commands of one invocation share.
type app struct {
	databaseURL    string
	fromVariable   bool // the URL is that of the variable DATABASE_URL, and not of the flag
	namespace      string
	namespaceGiven bool // by the flag or a variable
	log            *slog.Logger
	started        bool // the command line was accepted: later errors are no errors of usage
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = &plain{w: stdout}, &plain{w: stderr}
	a := &app{log: slog.New(slog.NewTextHandler(stderr, nil))}
	root := newRoot(a)
	if cmd, _, err := root.Find(args); err == nil && cmd.Name() == "seek" {
		args = shieldNegative(args)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.started {
		err = usageError{plainUsage(err), usageHint(cmd, err)}
	}
	printError(stderr, err)
	return exitCode(err)
}

var goConversion = regexp.MustCompile(`strconv\.\w+: parsing ".*": `)

// plainUsage removes the names of Go functions from an error of the command line.
func plainUsage(err error) error {
	if text := goConversion.ReplaceAllString(err.Error(), ""); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func usageHint(cmd *cobra.Command, err error) string {
	hint := "run: " + cmd.CommandPath() + " --help"
	if text := err.Error(); strings.HasPrefix(text, "unknown flag") || strings.HasPrefix(text, "unknown shorthand flag") {
		hint += "; a name that begins with - comes after --"
	}
	return hint
}

const rootLong = `Posthorn is an event platform inside PostgreSQL.

WHEN SOMETHING IS WRONG
  what is stuck         posthorn jobs stuck
  who runs what         posthorn nodes busy
  who is starved        posthorn jobs tags
  where a job's time    posthorn jobs list --title TEXT, then
  went                  posthorn jobs show ID

The database is given by --database-url or the variable DATABASE_URL, as in
postgres://user:password@host:5432/database. The usual PG variables, such as
PGPASSWORD, supply the parts that the URL leaves out.

` + exitStatus

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "posthorn",
		Short:         "Event platform inside PostgreSQL",
		Long:          rootLong,
		Args:          cobra.NoArgs,
		RunE:          help,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.Version = currentVersion().line()
	root.SetVersionTemplate("{{.Version}}\n")
	flags := root.PersistentFlags()
	// The variables are not defaults of the flags: help would print them, with passwords.
	flags.StringVar(&a.databaseURL, "database-url", "", "the database (env DATABASE_URL)")
	flags.StringVar(&a.namespace, "namespace", "", `the namespace (env POSTHORN_NAMESPACE, else "default")`)
	root.AddCommand(
		newUp(a),
		newServe(a),
		newMigrate(a),
		newPublish(a),
		newTail(a),
		newSearch(a),
		newGroups(a),
		newProjections(a),
		newRelay(a),
		newRelays(a),
		newImport(a),
		newImports(a),
		newFailovers(a),
		newDeadLetters(a),
		newWebhooks(a),
		newSchedules(a),
		newJobs(a),
		newStreams(a),
		newNodes(a),
		newNamespaces(a),
		newTokens(a),
		newArchive(a),
		newMCP(a),
		newOutcome(a),
		newDoctor(a),
		newRebase(a),
		newSchema(),
		newVersion(),
	)
	a.noteStart(root)
	for _, sub := range root.Commands() {
		listByDefault(sub)
	}
	explainArguments(root)
	a.completeNames(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"database-url", "namespace"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
				return fmt.Errorf("--%s is empty: leave it out for the default", name)
			}
		}
		a.fromEnvironment()
		return nil
	}
	return root
}

// noteStart makes every command record that its arguments were accepted. It wraps RunE,
// since cobra checks some arguments after the last of its hooks.
func (a *app) noteStart(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		a.noteStart(sub)
	}
}

// explainArguments replaces cobra's error about a wrong number of arguments: it shows the
// usage line. Cobra's error has only the number, or calls an argument an unknown command.
func explainArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
	if onlyHolds(cmd) {
		cmd.Args = noSuchCommand
		return
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		given := "no argument was given"
		if len(args) > 0 {
			given = fmt.Sprintf("given were %q", args)
		}
		return fmt.Errorf("usage: %s; %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"), given)
	}
}

// onlyHolds reports whether a command only holds others. posthorn archive holds others,
// but takes a URL too.
func onlyHolds(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ")
}

// noSuchCommand refuses a mistyped command and suggests the nearest ones.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return fmt.Errorf("%s has no command %q: did you mean %s?", cmd.CommandPath(), args[0], strings.Join(meant, " or "))
	}
	return fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])
}

// listByDefault makes a command that only holds others run its list command.
func listByDefault(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == "list" && onlyHolds(cmd) {
			cmd.Flags().AddFlagSet(sub.Flags())
			cmd.RunE = sub.RunE
		}
	}
}

func (a *app) fromEnvironment() {
	if a.databaseURL == "" {
		a.databaseURL = os.Getenv("DATABASE_URL")
		a.fromVariable = a.databaseURL != ""
	}
	if a.namespace == "" {
		a.namespace = os.Getenv("POSTHORN_NAMESPACE")
	}
	if a.namespaceGiven = a.namespace != ""; !a.namespaceGiven {
		a.namespace = "default"
	}
}

// help prints the help of a command that only holds others.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }
