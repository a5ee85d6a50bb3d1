package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/schema"
)

// connect opens one connection, which the caller closes. An error names the variable if
// the URL is from there: the user may have forgotten its value.
func (a *app) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := connect(ctx, a.databaseURL, a.log, admin.Connect)
	return conn, a.ofVariable(err)
}

// connectOnceReady is connect for processes that are started together with the database: it waits
// while the server starts or recovers, and says so.
func (a *app) connectOnceReady(ctx context.Context) (*pgx.Conn, error) {
	conn, err := connect(ctx, a.databaseURL, a.log, admin.ConnectOnceReady)
	return conn, a.ofVariable(err)
}

// ofVariable adds the variable's name to an error about the database's URL.
func (a *app) ofVariable(err error) error {
	if err != nil && a.fromVariable {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	return err
}

// connector is [admin.Connect] or [admin.ConnectOnceReady].
type connector func(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error)

func connect(ctx context.Context, url string, log *slog.Logger, by connector) (*pgx.Conn, error) {
	config, err := databaseConfig(url)
	if err != nil {
		return nil, err
	}
	conn, err := by(ctx, config, log)
	if err != nil {
		return nil, unreachable(config, err)
	}
	return conn, nil
}

// cancelTimeout limits the wait for the server to cancel an interrupted statement.
const cancelTimeout = 5 * time.Second

// disconnect closes a connection. After an interrupt, the connection cancels its
// statement in the background; the program must not end before that, or the statement
// would continue and keep its locks.
func disconnect(ctx context.Context, conn *pgx.Conn) {
	_ = conn.Close(context.WithoutCancel(ctx))
	select {
	case <-conn.PgConn().CleanupDone():
	case <-time.After(cancelTimeout):
	}
}

func databaseConfig(url string) (*pgx.ConnConfig, error) {
	if url == "" {
		return nil, usageError{errors.New("no database given"), "use --database-url or set DATABASE_URL"}
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The parser's error quotes the URL. In a broken URL the password cannot be told
		// from the rest, so nothing of the error is shown.
		return nil, usageError{
			errors.New("the database URL is not valid"),
			"it should look like postgres://user:password@host:5432/database, with special characters in the password percent-encoded",
		}
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "posthorn"
	}
	// A command runs each statement once: preparing it gains nothing, and does not work
	// through every pooler.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return config, nil
}

// unreachable makes one line of an error of pgx, which has a line for each attempt.
func unreachable(config *pgx.ConnConfig, err error) error {
	address := addresses(config)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return hintError{
			fmt.Errorf("database at %s: %w", address, pgErr),
			fmt.Sprintf("the server runs; check user %q, its password and database %q", config.User, config.Database),
		}
	}
	return hintError{
		fmt.Errorf("cannot reach the database at %s: %w", address, innermost(err)),
		"check that PostgreSQL runs there, and host and port in --database-url or DATABASE_URL",
	}
}

// addresses are the hosts of a URL, in the order in which they are tried.
func addresses(config *pgx.ConnConfig) string {
	all := []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	for _, other := range config.Fallbacks { // some of which differ only in TLS
		all = append(all, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	return strings.Join(slices.Compact(all), ", ")
}

// innermost returns the cause, without the outer errors, which repeat the address.
func innermost(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case pgconn.Timeout(err):
		return errors.New("timed out")
	case errors.As(err, &dns):
		return errors.New(dns.Err)
	case errors.As(err, &op):
		return op.Err
	default:
		return err
	}
}

// withDatabase runs use with a connection to a database that this binary can work with.
// A namespace that the user has named must exist: lists of a mistyped one would be empty.
func (a *app) withDatabase(ctx context.Context, use func(conn *pgx.Conn) error) error {
	conn, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect(ctx, conn)
	if err := schema.Check(ctx, conn); err != nil {
		return err
	}
	if a.namespaceGiven {
		if err := admin.New(conn, a.namespace).CheckNamespace(ctx); err != nil {
			return err
		}
	}
	return use(conn)
}

// withAdmin runs use with an Admin of the namespace.
func (a *app) withAdmin(ctx context.Context, use func(adm *admin.Admin) error) error {
	return a.withDatabase(ctx, func(conn *pgx.Conn) error { return use(admin.New(conn, a.namespace)) })
}

// withOpeningAdmin runs use with an Admin that opens payloads with the keepers; without
// keepers they stay sealed.
func (a *app) withOpeningAdmin(ctx context.Context, keepers *keeperFlags, use func(adm *admin.Admin) error) error {
	if keepers == nil {
		return a.withAdmin(ctx, use)
	}
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		return keepers.withOpener(ctx, conn, a.log, func(opener admin.Opener) error {
			return use(admin.New(conn, a.namespace).Opening(opener))
		})
	})
}

// client opens a client. If the database cannot be reached, the error is like that of
// connect.
func (a *app) client(ctx context.Context, name string, keepers keepers) (*posthorn.Client, error) {
	config, err := databaseConfig(a.databaseURL)
	if err != nil {
		return nil, a.ofVariable(err)
	}
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: a.databaseURL, Namespace: a.namespace, ApplicationName: name, DisplayName: name, Logger: a.log,
		Seal: keepers.config(),
	})
	if _, unconnected := errors.AsType[*pgconn.ConnectError](err); unconnected {
		return nil, a.ofVariable(unreachable(config, err))
	}
	if err != nil {
		return nil, cmp.Or(errors.Unwrap(err), err) // without "open posthorn:"
	}
	return ph, nil
}

// withClient runs use with a client that seals with the keepers.
func (a *app) withClient(ctx context.Context, f keeperFlags, use func(ph *posthorn.Client) error) error {
	keepers, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer keepers.close()
	ph, err := a.client(ctx, "", keepers)
	if err != nil {
		return err
	}
	defer ph.Close()
	return use(ph)
}
