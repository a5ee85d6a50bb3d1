package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/posthorntest"
)

var grantInHint = regexp.MustCompile(`(?m)^hint: as the owner of the schema: (grant [^;\n]*)`)

// A user without a role of Posthorn gets the grant to run, with its own name. After it the command works.
func TestUserWithoutARoleIsToldTheGrant(t *testing.T) {
	t.Parallel()
	user := testguide.NewUser(t, posthorntest.Database(t))
	publish := func() (string, error) {
		cmd := exec.Command("posthorn", "publish", "order.placed")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+user.With(""))
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	output, err := publish()
	grant := grantInHint.FindStringSubmatch(output)
	if err == nil || grant == nil {
		t.Fatalf("%v, %s", err, output)
	}
	user.Exec(grant[1])
	if output, err := publish(); err != nil {
		t.Errorf("%v, %s", err, output)
	}
}
