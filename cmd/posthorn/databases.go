package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/server"
)

// databasesFlag is the flag of commands that take several databases.
type databasesFlag struct{ named []string }

// namedDatabase is one of several databases.
type namedDatabase struct{ name, url string }

func (f *databasesFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.named, "database", nil, "NAME=URL of one of several databases; may be repeated (env POSTHORN_DATABASES, separated by spaces)")
}

// databases returns the databases of --database or POSTHORN_DATABASES; none if the command has the one of --database-url or
// DATABASE_URL. Errors do not quote the URLs, which may have passwords.
func (a *app) databases(f databasesFlag) ([]namedDatabase, error) {
	byURL := a.databaseURL != "" && !a.fromVariable
	switch {
	case byURL && len(f.named) > 0:
		return nil, usageError{errors.New("--database-url is for one database, and --database for several"), "leave one of them out"}
	case byURL:
		return nil, nil
	case len(f.named) == 0:
		f.named = strings.Fields(os.Getenv("POSTHORN_DATABASES"))
	}
	const example = "such as --database orders=postgres://app@db1.example/orders"
	var all []namedDatabase
	var names []string
	for _, pair := range f.named {
		name, url, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.Contains(name, "://") {
			return nil, usageError{errors.New("a database is given as NAME=URL"), example}
		}
		names = append(names, name)
		if err := server.CheckDatabaseNames(names); err != nil {
			return nil, usageError{err, example}
		}
		if _, err := databaseConfig(url); err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
		all = append(all, namedDatabase{name, url})
	}
	return all, nil
}

// of returns the state of the command for one of several databases. Its log says which one.
func (a *app) of(db namedDatabase) *app {
	one := *a
	one.databaseURL, one.fromVariable, one.log = db.url, false, a.log.With("database", db.name)
	return &one
}
