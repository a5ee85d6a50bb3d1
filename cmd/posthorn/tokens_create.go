package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/op"
)

const tokensScopes = `NAME tells people whose token it is. SCOPE is one of:

  read         read events, groups, jobs and everything else
  publish      publish events
  consume      make groups and subscriptions, claim and settle events
  jobs:create  make and cancel jobs
  jobs:work    take jobs, and complete or fail them
  admin        everything else: seek, pause, redrive, delete, schedules, webhooks
  all          all of these

Only tokens that name a restricted stream may use it. posthorn tokens revoke --all
--open lets requests without a token in again.`

func newTokensCreate(a *app) *cobra.Command {
	in := &op.CreateTokenInput{}
	return changeOf(a, op.CreateToken, in, func(c *changeCommand) {
		c.about = aboutOf(op.CreateToken, tokensScopes)
		c.prepare = func(_ *cobra.Command, args []string) error {
			in.Body.Name = args[0]
			return nil
		}
	})
}
