package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/mcp"
)

const mcpLong = `Serve the operations to an assistant by the Model Context Protocol, on the standard
input and output, until the input ends. The client starts this command; it needs
DATABASE_URL, or --database-url, and may do what that user may.

Without --allow-changes only operations are served that look. With it, those that
change something answer with a preview first, and do it when they are called again
with the code of that preview. They are in the audit log, by "mcp". Operations
whose answer is a secret, such as making a token, are never served.

With --database there are several databases, and each call names one.`

const mcpExample = `  posthorn mcp
  posthorn mcp --allow-changes --namespace billing`

func newMCP(a *app) *cobra.Command {
	cmd := about{"mcp", "Serve the operations to an assistant", mcpLong, mcpExample}.command()
	var several databasesFlag
	several.add(cmd)
	allow := cmd.Flags().Bool("allow-changes", false, "also serve operations that change something, with a preview first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		databases, err := a.databases(several)
		if err != nil {
			return err
		}
		server := mcp.Server{Version: currentVersion().Version, AllowChanges: *allow}
		apps := map[string]*app{"": a}
		for _, db := range databases {
			apps[db.name] = a.of(db)
			server.Databases = append(server.Databases, db.name)
		}
		if len(databases) == 0 { // of several, one may be away
			if err := a.withDatabase(ctx, func(*pgx.Conn) error { return nil }); err != nil { // at once, rather than in each call
				return err
			}
		}
		server.With = func(ctx context.Context, database string, use func(*admin.Admin) error) error {
			return apps[database].withAdmin(ctx, func(adm *admin.Admin) error { return use(adm.By("mcp")) })
		}
		return ignoreInterrupt(ctx, server.Serve(ctx, input{ctx, cmd.InOrStdin()}, cmd.OutOrStdout()))
	}
	return cmd
}
