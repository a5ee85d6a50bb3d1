package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errEnded means that the server ended before it accepted connections.
var errEnded = errors.New("postgres ended")

func tcpURL(port int, password, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func socketURL(dir string, port int, password, database string) string {
	query := url.Values{"host": {dir}, "port": {strconv.Itoa(port)}, "sslmode": {"disable"}}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, password),
		Path:     "/" + database,
		RawQuery: query.Encode(),
	}
	return u.String()
}

// waitReady connects, repeatedly, until the server accepts connections. Recovery
// after a crash may take long, so only ctx limits the wait.
func waitReady(ctx context.Context, databaseURL string, p *process) (*pgx.Conn, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, databaseURL)
		if err == nil {
			return conn, nil
		}
		if refused(err) {
			return nil, err
		}
		select {
		case <-p.done:
			return nil, errEnded
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until postgres accepts connections: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// refused reports whether the server has rejected the connection permanently, for
// example because the password was changed.
func refused(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(pgErr.Code, "28")
}

func ensureDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	var exists bool
	err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// setSearchPath keeps the tables of users out of the schema posthorn: the role has
// that name, and the default search_path begins with the schema named like the role.
// A search_path that a user has set for the role is kept.
func setSearchPath(ctx context.Context, conn *pgx.Conn) error {
	var set bool
	err := conn.QueryRow(ctx, `
		select exists (
			select from pg_db_role_setting s, unnest(s.setconfig) c
			where s.setrole = current_user::regrole and s.setdatabase = 0 and c like 'search\_path=%')`).Scan(&set)
	if err == nil && !set {
		_, err = conn.Exec(ctx, "alter role "+pgx.Identifier{role}.Sanitize()+" set search_path = public")
	}
	if err != nil {
		return fmt.Errorf("set the search_path of role %s: %w", role, err)
	}
	return nil
}
