package typescript_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/posthorntest"
)

var npmInstall = regexp.MustCompile("```\\n(npm install .*)\\nnode ([a-z]+\\.mjs)\\n```")

// The README's program for Node runs in an empty folder, with an empty home, after the command of the install page. The
// packages are those of a release, and of the machine.
func TestReadmeProgramInstalledFromPackages(t *testing.T) {
	t.Parallel()
	client := testnode.Dir(t)
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	command := npmInstall.FindStringSubmatch(string(page))
	if command == nil {
		t.Fatal("docs/install.md does not say how to run a program")
	}
	examples := testguide.Examples(t, "../../README.md")
	i := slices.IndexFunc(examples, func(e testguide.Example) bool { return e.Language == "js" })
	if i < 0 {
		t.Fatal("the README has no program for Node")
	}
	home, dir, packages := t.TempDir(), t.TempDir(), t.TempDir()
	wanted := strings.Fields(command[1])[2:]
	names := dependencies(t, client, wanted)
	release := exec.CommandContext(t.Context(), "../../scripts/release-node", packages, "0.1.0")
	release.Env = append(os.Environ(), "npm_config_cache="+filepath.Join(home, ".npm"))
	if output, err := release.CombinedOutput(); err != nil {
		t.Fatalf("scripts/release-node: %v\n%s", err, output)
	}
	npm(t, client, home, append([]string{"pack", "--ignore-scripts", "--silent", "--pack-destination", packages}, names...)...)
	tarballs, err := filepath.Glob(filepath.Join(packages, "*.tgz"))
	if err != nil || len(tarballs) != 1+len(names) {
		t.Fatalf("packed %v for %v: %v", tarballs, names, err)
	}
	npm(t, dir, home, append([]string{"install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"}, tarballs...)...)
	program := filepath.Join(dir, command[2])
	if err := os.WriteFile(program, []byte(examples[i].Text), 0o600); err != nil {
		t.Fatal(err)
	}
	user := testguide.NewUser(t, posthorntest.Database(t))
	worker := startNode(t, t.Output(), []string{"HOME=" + home, "DATABASE_URL=" + user.With(examples[i].Needs)}, program)
	worker.await("Mail the receipt of order 8", 1)
	await.True(t, "the job is done", func() bool { return user.Ask("select status = 'COMPLETED' from posthorn.jobs") })
	if err := worker.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if rest := worker.rest(); rest != "" {
		t.Errorf("it also printed %s", rest)
	}
	worker.stop()
}

// dependencies are the folders of the installed packages that programs of a release have beside the client.
func dependencies(t *testing.T, client string, wanted []string) (dirs []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(client, "node_modules", ".package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Dependencies map[string]string }
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"posthorn": true}
	for ; len(wanted) > 0; wanted = wanted[1:] {
		if name := wanted[0]; !seen[name] {
			seen[name] = true
			dirs = append(dirs, filepath.Join(client, "node_modules", name))
			for needed := range lock.Packages["node_modules/"+name].Dependencies {
				wanted = append(wanted, needed)
			}
		}
	}
	return dirs
}

// npm runs npm without a cache, and without settings of the user.
func npm(t *testing.T, dir, home string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+home, "npm_config_cache="+filepath.Join(home, ".npm"), "npm_config_userconfig="+filepath.Join(home, ".npmrc"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}
