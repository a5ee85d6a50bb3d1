package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

const upLong = `Run everything that Posthorn needs, until Ctrl-C: a database, migrated, its upkeep,
and the HTTP API; /docs says what there is. Who gets in is as with posthorn serve.

Given --database-url, up uses that database. Without it, up runs a PostgreSQL
server of its own, with binaries that it finds on this machine, or else downloads.
The data stays in --data: by default in $XDG_DATA_HOME/posthorn, which usually is
~/.local/share/posthorn, and for root in /var/lib/posthorn.

If DATABASE_URL names another database than its own, up asks at a terminal
whether to migrate and use that one, and elsewhere ends. --local runs its own.

With a database of its own and no --seal-key, it makes a key for confidential
streams there: DATA/seal.key.

It prints "posthorn is ready" when it is.`

const upExample = `  posthorn up
  posthorn up --local --data ./data --pg-port 5433 --listen 127.0.0.1:8081
  posthorn up --database-url postgres://app@db.example/shop`

// stopTimeout is how long Postgres may take to stop cleanly. After that it is
// ended at once, which loses nothing but time at the next start.
const stopTimeout = 30 * time.Second

func newUp(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Run everything, with a database of its own",
		Long:    upLong,
		Example: upExample,
		Args:    cobra.NoArgs,
	}
	data := cmd.Flags().String("data", "", "where the data of its own database stays")
	local := cmd.Flags().Bool("local", false, "run a database of its own, also if DATABASE_URL names another")
	port := cmd.Flags().Int("pg-port", 0, "TCP port of its own database (default: the last one used, or any free one)")
	var f httpFlags
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.chooseDatabase(cmd, *local, *data); err != nil {
			return err
		}
		if a.databaseURL != "" && (*local || *data != "" || *port != 0) {
			return usageError{
				errors.New("--local, --data and --pg-port are for a database of its own, and another one is given"),
				"leave them out, or --database-url",
			}
		}
		web, err := f.open(cmd.Context(), a.log)
		if err != nil {
			return untilTold(cmd.Context(), err)
		}
		defer web.close()
		if a.databaseURL != "" {
			if err := web.openKeepers(cmd.Context()); err != nil {
				return err
			}
			return a.up(cmd, web, nil)
		}
		return a.upWithServer(cmd, web, *data, *port)
	}
	return cmd
}

// chooseDatabase leaves no URL where up is to run a database of its own. Another one
// is migrated only if the user says so: the variable may be there for other programs.
func (a *app) chooseDatabase(cmd *cobra.Command, local bool, data string) error {
	if !a.fromVariable {
		return nil
	}
	if local || isOwnDatabase(data, a.databaseURL) {
		a.databaseURL, a.fromVariable = "", false
		return nil
	}
	if _, err := databaseConfig(a.databaseURL); err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	named, err := withoutPassword(a.databaseURL)
	if err != nil {
		return err
	}
	const ways = `to migrate and use it: posthorn up --database-url "$DATABASE_URL"; to run a database of its own: posthorn up --local`
	if !isTerminal(cmd.InOrStdin()) {
		return usageError{fmt.Errorf("DATABASE_URL names %s, which posthorn up did not make", named), ways}
	}
	err = confirm(cmd, false, fmt.Sprintf("DATABASE_URL names %s, which posthorn up did not make: migrate and use it", named))
	if errors.Is(err, errDeclined) {
		return hintError{err, ways}
	}
	return err
}

func isOwnDatabase(data, databaseURL string) bool {
	if data == "" {
		var err error
		if data, err = defaultDataDir(); err != nil {
			return false
		}
	}
	return localpg.Owns(localpg.Config{Dir: data}, databaseURL)
}

func (a *app) upWithServer(cmd *cobra.Command, web *web, data string, port int) error {
	if data == "" {
		var err error
		if data, err = defaultDataDir(); err != nil {
			return err
		}
	}
	server, err := localpg.Start(cmd.Context(), localpg.Config{Dir: data, Port: port, Logger: a.log})
	if err != nil {
		if cmd.Context().Err() != nil {
			return nil // told to stop while it started
		}
		return err
	}
	a.databaseURL = server.URL()
	err = a.openOwnKey(cmd, web, data)
	if err == nil {
		err = a.up(cmd, web, server)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), stopTimeout)
	defer cancel()
	return errors.Join(err, server.Stop(ctx))
}

// openOwnKey sees to it that confidential streams work, with a key file beside the
// data if nothing else is given.
func (a *app) openOwnKey(cmd *cobra.Command, web *web, data string) error {
	made, err := web.flags.keepers.ownKey(data)
	if err != nil {
		return err
	}
	if made != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"seal key: %s (made now; without it confidential streams are unreadable: keep a copy, away from copies of the data)\n", made)
	}
	return errors.Join(err, web.openKeepers(cmd.Context()))
}

// up migrates the database, is a node there and serves it, until told to stop or
// until the server of its own ends.
func (a *app) up(cmd *cobra.Command, web *web, server *localpg.Server) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ph, err := a.open(ctx, web.keepers)
	if err != nil {
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	defer ph.Close()
	if err := web.admit(ctx, ph); err != nil {
		return untilTold(ctx, err)
	}
	if err := a.printReady(cmd.OutOrStdout(), web, server); err != nil {
		return err
	}
	if server != nil {
		go func() {
			select {
			case <-ctx.Done():
			case <-server.Done():
				cancel()
			}
		}()
	}
	err = web.run(ctx, ph)
	if server != nil && cmd.Context().Err() == nil {
		return errors.Join(err, server.Err())
	}
	return err
}

// open migrates through a connection that says in a sentence why it cannot
// connect, and returns a client.
func (a *app) open(ctx context.Context, keepers keepers) (*posthorn.Client, error) {
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	_, err = schema.Migrate(ctx, conn, schema.Options{Logger: a.log})
	if err == nil {
		err = a.warnOfStrangers(ctx, conn)
	}
	disconnect(ctx, conn)
	if err != nil {
		return nil, err
	}
	return a.client(ctx, "posthorn up", keepers)
}

// printReady says what to type next. The password of a database of one's own is
// made up and of use here only; that of another one is nobody's business.
func (a *app) printReady(w io.Writer, web *web, server *localpg.Server) error {
	shown, err := withoutPassword(a.databaseURL)
	if err != nil {
		return err
	}
	export := ""
	if server != nil {
		shown = a.databaseURL
		export = "  export DATABASE_URL='" + shown + "'\n"
	}
	if err := web.print(w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `database: %s

In another terminal:
%s  %s tail
  %s publish hello '{"to": "world"}'
  psql "$DATABASE_URL" -c "select posthorn.publish('default', 'hello', '{}')"
  curl %s/v1/events

posthorn is ready
`, shown, export, program(), program(), web.url())
	return err
}

// program is what to type for this program: its name where the shell finds
// that, and otherwise the path by which it was started.
func program() string {
	if _, err := exec.LookPath("posthorn"); err == nil {
		return "posthorn"
	}
	return os.Args[0]
}

func withoutPassword(database string) (string, error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return "", err // connect has accepted it
	}
	u := url.URL{Scheme: "postgres", User: url.User(config.User), Path: "/" + config.Database}
	u.Host = config.Host + ":" + strconv.Itoa(int(config.Port))
	return u.String(), nil
}
