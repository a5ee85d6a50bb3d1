// Package scripts tests the scripts.
package scripts

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

// module is a minimal module, whose program prints its arguments.
var module = map[string]string{
	"go.mod":               "module example.com/m\n\ngo 1.26\n",
	"cmd/posthorn/main.go": "package main\n\nimport (\n\"os\"\n\"strings\"\n)\n\nfunc main() { println(\"runs\", strings.Join(os.Args[1:], \" \")) }\n",
	"scripts/deps":         "#!/bin/sh\necho looked for $1\n[ -n \"$POSTGRES\" ]\n",
	"slow":                 "#!/bin/sh\ncase \"$*\" in *-V=full*) exec \"$@\" ;; esac\necho >>\"$STARTED\"\nexec tail -f /dev/null\n",
}

// upRun is one run of the script, in a module and a process group of its own.
type upRun struct {
	*exec.Cmd
	dir            string
	alive, watched *os.File // both ends of a pipe that all its processes hold open
}

func up(t *testing.T, env string, args ...string) upRun {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile("up")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, "scripts", "up")}, args...)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL=", "GOWORK=off", env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	watched, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watched.Close() })
	cmd.ExtraFiles = []*os.File{alive}
	r := upRun{cmd, dir, alive, watched}
	// Without compiler flags the standard library is in the cache.
	r.write(t, "scripts/up", regexp.MustCompile(" -gcflags='[^']*'").ReplaceAllString(string(script), ""))
	for name, content := range module {
		r.write(t, name, content)
	}
	return r
}

func (r upRun) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// wait returns when all processes have ended.
func (r upRun) wait(t *testing.T) {
	t.Helper()
	r.alive.Close()
	if err := r.watched.SetReadDeadline(time.Now().Add(await.Limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r.watched); err != nil {
		t.Errorf("a process is still running: %v", err)
	}
}

// The script looks for Postgres where it is needed, and goes on without: posthorn up
// downloads one.
func TestUpBuildsAndRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, env string
		args      []string
		want      string
	}{
		{"with Postgres", "POSTGRES=yes", []string{"--pg-port", "5433"}, "looked for postgres\nruns up --pg-port 5433\n"},
		{"without", "POSTGRES=", nil, "looked for postgres\nruns up\n"},
		{"with a database", "DATABASE_URL=postgres://db.example/shop", nil, "runs up\n"},
		{"with a database as a flag", "POSTGRES=yes", []string{"--database-url=x"}, "runs up --database-url=x\n"},
		{"with a database and not for it", "DATABASE_URL=postgres://db.example/shop", []string{"--local"}, "looked for postgres\nruns up --local\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cmd := up(t, test.env, test.args...)
			output, err := cmd.CombinedOutput()
			said := regexp.MustCompile(`(?m)^(building .*|example\.com/m/.*)\n`).ReplaceAllString(string(output), "")
			if err != nil || said != test.want {
				t.Errorf("%v: %s", err, output)
			}
			cmd.wait(t)
		})
	}
}

// A program that does not compile does not run, and neither does an old one.
func TestUpShowsErrorsOfTheBuild(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ main, want string }{
		"of the compiler": {"package main\n\nvar x int = broken\n", "undefined: broken"},
		"of modules":      {"package main\n\nimport _ \"example.com/m/missing\"\n", "example.com/m/missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := up(t, "POSTGRES=yes")
			cmd.write(t, "cmd/posthorn/broken.go", test.main)
			cmd.write(t, "bin/posthorn", "#!/bin/sh\necho an old one\n")
			output, err := cmd.CombinedOutput()
			cmd.wait(t)
			if err == nil || !strings.Contains(string(output), test.want) || strings.Contains(string(output), "an old one") {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

// A terminal sends Ctrl-C to all processes of the group, and all of them end.
func TestUpInterrupted(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGINT) {
		t.Skip("the children of this process ignore SIGINT too")
	}
	cmd := up(t, "POSTGRES=yes")
	started := filepath.Join(cmd.dir, "started")
	cmd.Env = append(cmd.Env, "GOCACHE="+t.TempDir(), "GOFLAGS=-toolexec="+filepath.Join(cmd.dir, "slow"), "STARTED="+started)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a compiler has started", func() bool { return compilers(started) > 0 })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the script continued: %s", output.String())
	}
	cmd.wait(t)
	if n := compilers(started); n > 2*runtime.NumCPU() {
		t.Errorf("%d compilers ran", n)
	}
}

func compilers(started string) int {
	lines, _ := os.ReadFile(started) // the file does not exist before the first compiler starts
	return bytes.Count(lines, []byte("\n"))
}
