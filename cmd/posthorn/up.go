package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

const upLong = `Run everything that Posthorn needs, until Ctrl-C: a database with the current
schema, its upkeep, and the HTTP API, which /docs describes. Tokens are needed as
with posthorn serve.

With --database-url, up uses that database. Without it, up runs a PostgreSQL
server of its own, with binaries from this machine or, if there are none,
downloaded ones. The data is in the directory --data: by default
$XDG_DATA_HOME/posthorn, usually ~/.local/share/posthorn, and for root
/var/lib/posthorn.

If DATABASE_URL names a database that is not up's own, up asks at a terminal
whether to migrate and use it; elsewhere it ends with an error. With --local it
runs a database of its own.

With a database of its own and without --seal-key, it makes a key file for
confidential streams: seal.key in the directory of the data.

With a database of its own it also prints the directory of the data, and whether the
data is new or since when it is there.

It prints "posthorn is ready" when the database and the API can be used.`

const upExample = `  posthorn up
  posthorn up --local --data ./data --pg-port 5433 --listen 127.0.0.1:8081
  posthorn up --database-url postgres://app@db.example/shop`

// stopTimeout is how long Postgres may take to stop cleanly. After that it is stopped
// immediately: nothing is lost, but the next start takes longer.
const stopTimeout = 30 * time.Second

func newUp(a *app) *cobra.Command {
	cmd := about{"up", "Run everything, with a database of its own", upLong, upExample}.command()
	data := cmd.Flags().String("data", "", "the directory for the data of its own database")
	local := cmd.Flags().Bool("local", false, "run a database of its own, even if DATABASE_URL names another one")
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
			return ignoreInterrupt(cmd.Context(), err)
		}
		defer web.close()
		if a.databaseURL != "" {
			if err := web.openKeepers(cmd.Context()); err != nil {
				return err
			}
			return a.up(cmd, web, nil, "")
		}
		return a.upWithServer(cmd, web, *data, *port)
	}
	return cmd
}

// chooseDatabase clears the URL if up has to run a database of its own. It asks the user
// before up migrates another one: DATABASE_URL may be set for other programs.
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
			return nil // interrupted during the start
		}
		return err
	}
	a.databaseURL = server.URL()
	err = a.openOwnKey(cmd, web, data)
	if err == nil {
		err = a.up(cmd, web, server, data)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), stopTimeout)
	defer cancel()
	return errors.Join(err, server.Stop(ctx))
}

// openOwnKey opens the keepers. Without --seal-key, the key is a file beside the data.
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

// up migrates the database, runs a node and serves HTTP, until ctx or its own Postgres
// server ends, whose data is in a directory.
func (a *app) up(cmd *cobra.Command, web *web, server *localpg.Server, data string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ph, report, err := a.open(ctx, web.keepers)
	if err != nil {
		if cmd.Context().Err() != nil {
			return nil
		}
		return ofData(data, err)
	}
	defer ph.Close()
	if err := web.readAccess(ctx, ph); err != nil {
		return ignoreInterrupt(ctx, err)
	}
	if server != nil {
		if err := ignoreInterrupt(ctx, printData(cmd, ph, data, report)); err != nil {
			return err
		}
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

// ofData adds the directory to an error of a database that up runs: a user who did not name it may not know that there
// are data of an earlier version, perhaps one that no release can upgrade.
func ofData(data string, err error) error {
	if data == "" {
		return err
	}
	if whole, failed := filepath.Abs(data); failed == nil {
		data = whole
	}
	err = fmt.Errorf("the data in %s: %w", data, err)
	if errors.Is(err, schema.ErrTooNew) || posthorn.Hint(err) != "" {
		return err
	}
	return hintError{err, "data of a version that was not released cannot be upgraded: name another directory with --data, or move this one away, and up begins with new data"}
}

// open migrates the database and opens a client.
func (a *app) open(ctx context.Context, keepers keepers) (*posthorn.Client, schema.Report, error) {
	conn, err := a.connectOnceReady(ctx)
	if err != nil {
		return nil, schema.Report{}, err
	}
	report, err := schema.Migrate(ctx, conn, schema.Options{Logger: a.log})
	if err == nil {
		err = a.warnOfForeignObjects(ctx, conn)
	}
	disconnect(ctx, conn)
	if err != nil {
		return nil, schema.Report{}, err
	}
	ph, err := a.client(ctx, "posthorn up", keepers)
	return ph, report, err
}

// printData prints the directory of the data of the database that up runs, and the age of the data.
func printData(cmd *cobra.Command, ph *posthorn.Client, data string, report schema.Report) error {
	data, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	age, err := ageOfData(cmd.Context(), ph, report)
	if err != nil {
		return err
	}
	return printLine(cmd, "data: %s, %s", data, age)
}

// ageOfData says whether the schema was made just now, or since when it is there and how many events it has: a user who
// expects an empty log sees the events of last week. It counts up to 10,000, since up does not wait for a long count.
func ageOfData(ctx context.Context, ph *posthorn.Client, report schema.Report) (string, error) {
	if report.From == (schema.Version{}) {
		return "new", nil
	}
	var made time.Time
	var events string
	err := ph.Pool().QueryRow(ctx, `
		select (select min(n.created_at) from posthorn.namespaces n),
			to_char(count(*), 'FM99,999') || case count(*) when 1 then ' event' when 10000 then ' events or more' else ' events' end
		from (select from posthorn.events limit 10000) e`).Scan(&made, &events)
	if err != nil {
		return "", fmt.Errorf("look at the data: %w", err)
	}
	return "from " + clockOf(made.Local(), time.Now()) + ", " + events, nil
}

// clockOf is a time of today as 07:58, and an earlier one with its date.
func clockOf(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// printReady prints the addresses, and commands to begin with. It prints the password only
// of up's own database, which is random and of use only on this machine.
func (a *app) printReady(w io.Writer, web *web, server *localpg.Server) error {
	shown, err := withoutPassword(a.databaseURL)
	if err != nil {
		return err
	}
	export := ""
	if server != nil {
		shown = a.databaseURL
		export = "  export DATABASE_URL='" + shown + "'\n  export POSTHORN_URL=" + web.url() + "\n"
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

// program is the name of this program for the shell: posthorn if it is in the PATH, and
// otherwise the path by which it was started.
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
