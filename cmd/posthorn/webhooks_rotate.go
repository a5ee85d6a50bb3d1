package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/op"
)

func newWebhooksRotate(a *app) *cobra.Command {
	in := &op.RotateWebhookSecretInput{}
	cmd := changeOf(a, op.RotateWebhookSecret, in, func(c *changeCommand) {
		c.prepare = func(cmd *cobra.Command, args []string) (err error) {
			in.Name = args[0]
			in.Body.Secret, err = secretOf(cmd, in.Body.Secret)
			return err
		}
	})
	cmd.Flags().Lookup("secret").Usage = secretUsage
	return cmd
}
