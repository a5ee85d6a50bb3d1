package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const webhooksRotateLong = `Give a webhook a new secret, and print it, this once. For the period --keep-old,
requests have a signature of the old secret too, so that the receiver can change to
the new one at any time within it.`

const webhooksRotateExample = `  posthorn webhooks rotate crm
  posthorn webhooks rotate crm --keep-old 7d
  posthorn webhooks rotate crm --keep-old 0s
  posthorn webhooks rotate crm --secret ed25519`

func newWebhooksRotate(a *app) *cobra.Command {
	cmd := about{"rotate NAME", "Give a webhook a new secret, and print it once", webhooksRotateLong, webhooksRotateExample}.command()
	secret := cmd.Flags().String("secret", "", secretUsage)
	keepOld := cmd.Flags().String("keep-old", "24h", "how long requests are signed with the old secret too; 0s ends it now")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given, err := secretOf(cmd, *secret)
		if err != nil {
			return err
		}
		keep := time.Duration(-1)
		if *keepOld != "0s" && *keepOld != "0" {
			if keep, err = op.Lifetime(*keepOld); err != nil {
				return err
			}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			made, err := adm.RotateWebhookSecret(cmd.Context(), args[0], given, keep)
			if err != nil {
				return err
			}
			return printWebhookSecret(cmd, adm, args[0], made, *asJSON)
		})
	}
	return cmd
}
