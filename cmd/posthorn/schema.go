package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/schema"
)

func newSchema() *cobra.Command {
	return parent(about{use: "schema", short: "Print the SQL of this binary"}, newSchemaPrint())
}

const schemaPrintLong = `Print one SQL script that installs the whole schema into a database that does not
have it yet. The script is plain SQL and needs no extension, so any client can run
it. posthorn migrate upgrades such a database later.`

func newSchemaPrint() *cobra.Command {
	cmd := about{
		use:     "print",
		short:   "Print the SQL that installs everything",
		long:    schemaPrintLong,
		example: `  posthorn schema print | psql -1 -v ON_ERROR_STOP=1 "$DATABASE_URL"`,
	}.command()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return schema.Print(cmd.OutOrStdout()) }
	return cmd
}
