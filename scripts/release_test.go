package scripts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testnode"
)

var script = regexp.MustCompile(`\bscripts/[a-z0-9-]+`)

// The workflows run scripts that exist, and each script of a release has a test here, or in the package of the image.
func TestWorkflowsRunScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var named []string
	for _, file := range files {
		workflow, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, script.FindAllString(string(workflow), -1)...)
	}
	if len(named) < 5 {
		t.Errorf("the workflows name only %v", named)
	}
	for _, name := range named {
		if info, err := os.Stat(filepath.Join("..", name)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("a workflow runs %s, which is no program: %v", name, err)
		}
	}
}

// govulncheck ends with 3 for a weakness, and with 1 when it reaches no database.
func TestVulnerabilitiesSaysWhatWasChecked(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"0": "no known weakness is called",
		"3": "the code calls what is known to be weak",
		"1": "nothing was checked",
	} {
		dir := t.TempDir()
		copyScript(t, dir, "vulnerabilities")
		writeProgram(t, filepath.Join(dir, "govulncheck"), "[ \"$*\" = ./... ] && exit "+code)
		writeProgram(t, filepath.Join(dir, "scripts", "test-program"), "[ $1 = govulncheck ] && echo "+dir+"/govulncheck")
		output, err := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts", "vulnerabilities")).CombinedOutput()
		if (err == nil) != (code == "0") || !strings.Contains(string(output), want) {
			t.Errorf("after govulncheck has ended with %s: %v, %s", code, err, output)
		}
	}
}

// The notes of a release are its part of the changelog.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyScript(t, dir, "release-notes")
	changelog := "# Changelog\n\n## Unreleased\n\nlater\n\n## 0.1.1 (a day)\n\nnewer\n\n## 0.1.0\n\nolder\n"
	if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"0.1.1": "newer", "0.1.0": "older", "0.1": ""} {
		output, err := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts", "release-notes"), version).Output()
		if strings.TrimSpace(string(output)) != want || (err == nil) != (want != "") {
			t.Errorf("the notes of %s are %q, %v", version, output, err)
		}
	}
}

// The notes of the first release are as long as a reader reads.
func TestNotesOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "./release-notes", "0.1.0").CombinedOutput()
	if lines := strings.Count(string(output), "\n"); err != nil || lines > 30 {
		t.Errorf("the notes have %d lines, more than 30: %v\n%s", lines, err, output)
	}
}

// The package has the version of its release, and what programs need: the code, its types and the license.
func TestReleaseNode(t *testing.T) {
	t.Parallel()
	testnode.Dir(t)
	dir := t.TempDir()
	runScript(t, "release-node", dir, "1.2.3")
	output, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(dir, "posthorn-1.2.3.tgz")).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(output))
	for _, want := range []string{"package.json", "LICENSE", "README.md", "dist/src/index.js", "dist/src/index.d.ts", "src/index.ts"} {
		if !slices.Contains(files, "package/"+want) {
			t.Errorf("the package has no %s: %v", want, files)
		}
	}
	var list struct {
		Metadata struct{ Component struct{ Version string } }
	}
	content, err := os.ReadFile(filepath.Join(dir, "posthorn-node.sbom.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &list); err != nil || list.Metadata.Component.Version != "1.2.3" {
		t.Errorf("the list of packages is of version %q, %v", list.Metadata.Component.Version, err)
	}
}

// The manifest of a release has an image for each binary.
func TestReleaseImage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("there is no buildah; scripts/deps image installs it")
	}
	if os.Getuid() != 0 {
		t.Skip("only root builds an image without a container engine")
	}
	dist, store := t.TempDir(), t.TempDir()
	storage := []string{"--root", filepath.Join(store, "root"), "--runroot", filepath.Join(store, "run"), "--storage-driver", "vfs"}
	for _, name := range []string{"posthorn_linux_amd64", "posthorn_linux_arm64", "ca-certificates.crt"} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runScript(t, "release-image", append([]string{dist, "localhost/posthorn", "1.2.3"}, storage...)...)
	output, err := exec.CommandContext(t.Context(), "buildah", append(storage, "manifest", "inspect", "localhost/posthorn:1.2.3")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Manifests []struct{ Platform struct{ Architecture string } }
	}
	if err := json.Unmarshal(output, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 || manifest.Manifests[0].Platform == manifest.Manifests[1].Platform {
		t.Errorf("the manifest has %+v", manifest.Manifests)
	}
}

func runScript(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./"+name, args...)
	cmd.Env = append(os.Environ(), "npm_config_cache="+t.TempDir())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("scripts/%s: %v\n%s", name, err, output)
	}
}

func copyScript(t *testing.T, dir, name string) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, filepath.Join(dir, "scripts", name), strings.TrimPrefix(string(content), "#!/bin/sh\n"))
}

func writeProgram(t *testing.T, path, commands string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
