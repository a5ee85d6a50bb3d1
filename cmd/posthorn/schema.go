package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/schema"
)

func newSchema() *cobra.Command {
	return holding(about{use: "schema", short: "Work with the SQL that this binary carries"}, newSchemaPrint())
}

const schemaPrintLong = `Print the whole schema as one SQL script, which installs it into a database
that does not have it yet. It is plain SQL and needs no extension, so any client
can run it. To upgrade, use posthorn migrate, which works on a database that was
installed this way too.`

func newSchemaPrint() *cobra.Command {
	return &cobra.Command{
		Use:     "print",
		Short:   "Print the SQL that installs everything",
		Long:    schemaPrintLong,
		Example: `  posthorn schema print | psql -1 -v ON_ERROR_STOP=1 "$DATABASE_URL"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return schema.Print(cmd.OutOrStdout())
		},
	}
}
