package main

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// container is a container as internal/test/containers prints it.
type container struct {
	Args   []string
	Env    map[string]string
	Port   int
	Probes []string
	User   string
	Grace  int
}

// The Kubernetes manifest and the compose file are valid, and their containers run: migrate,
// then serve, which is refused until there is a token, and answers the probes then. The
// validators are a module of their own, in internal/test/containers, built in place, so
// that Go uses its cache.
func TestManifests(t *testing.T) {
	t.Parallel()
	for format, file := range map[string]string{"kubernetes": "kubernetes.yml", "compose": "compose.yml"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			containers := containersOf(t, format, file)
			database := posthorntest.EmptyDatabase(t)
			command := func(name string, args ...string) *exec.Cmd {
				cmd := exec.Command("posthorn", args...)
				cmd.Env = append(os.Environ(), containers[name].environment(t, database)...)
				return cmd
			}
			migrates := containers["migrate"]
			mustRun(t, command("migrate", migrates.Args...))
			serves := containers["serve"]
			serve := onAnyPort(t, serves.Args, serves.Port)
			var probes []string
			for _, probe := range serves.Probes {
				path, found := strings.CutPrefix(probe, ":"+strconv.Itoa(serves.Port))
				if !found {
					t.Errorf("the probe %s has another port than %d", probe, serves.Port)
				}
				probes = append(probes, path)
			}
			startsWithToken(t, func(args ...string) *exec.Cmd { return command("serve", args...) }, serve, probes)
			if serves.Grace != 60 {
				t.Errorf("serve gets %d seconds to end, but docs/deploy.md says a minute", serves.Grace)
			}
			for name, c := range containers {
				if c.User != "" && c.User != dockerfile(t, "USER") {
					t.Errorf("%s runs as %s, but the image as %s", name, c.User, dockerfile(t, "USER"))
				}
			}
		})
	}
}

// environment is the environment of a container that uses the database. The password
// stands where the file has it.
func (c container) environment(t *testing.T, database string) []string {
	t.Helper()
	given, found := c.Env["DATABASE_URL"]
	if !found {
		t.Fatalf("a container has no DATABASE_URL, but %v", c.Env)
	}
	if given == "" {
		return []string{"DATABASE_URL=" + database}
	}
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := address.User.Password()
	address.User = url.User(address.User.Username())
	environment := []string{"DATABASE_URL=" + address.String()}
	if c.Env["PGPASSWORD"] != "" {
		environment = append(environment, "PGPASSWORD="+password)
	}
	return environment
}

func containersOf(t *testing.T, format, file string) (containers map[string]container) {
	t.Helper()
	path, err := filepath.Abs("../../deploy/" + file)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", format, path)
	cmd.Dir = "../../internal/test/containers"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if err := json.Unmarshal([]byte(mustRun(t, cmd)), &containers); err != nil {
		t.Fatal(err)
	}
	return containers
}

// dockerfile returns the arguments of an instruction of deploy/Dockerfile.
func dockerfile(t *testing.T, instruction string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + instruction + ` (.+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("deploy/Dockerfile has no %s", instruction)
	}
	return string(found[1])
}

// mustRun returns the output of a command that succeeds.
func mustRun(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, output, stderr.String())
	}
	return string(output)
}

// onAnyPort returns arguments of serve with a free port in place of the given one, which
// another process may use.
func onAnyPort(t *testing.T, args []string, port int) []string {
	t.Helper()
	address := ":" + strconv.Itoa(port)
	at := slices.Index(args, address)
	if at < 1 || args[at-1] != "--listen" {
		t.Fatalf("the container has the port %d, but the arguments %v", port, args)
	}
	args = slices.Clone(args)
	args[at] = ":0"
	return args
}

// startsWithToken starts serve, which is refused until there is a token, and asks the probes.
func startsWithToken(t *testing.T, command func(args ...string) *exec.Cmd, serve, probes []string) (p *process, token string) {
	t.Helper()
	refused, said, ended := command(serve...), &testworld.Buffer{}, make(chan error, 1)
	refused.Stdout, refused.Stderr = said, said
	if err := refused.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = refused.Process.Kill() })
	go func() { ended <- refused.Wait() }()
	if err := await.Value(t, "serve without a token ends", ended); err == nil || !strings.Contains(said.String(), "there is no token yet") {
		t.Errorf("without a token %v ends with %v, %s", serve, err, said)
	}
	token = strings.TrimSpace(mustRun(t, command("tokens", "create", "first", "--scope", "all")))
	p = start(t, command(serve...))
	for _, probe := range probes {
		if status := statusOf(t, p.url+probe, ""); status != 200 {
			t.Errorf("%s answers %d", probe, status)
		}
	}
	return p, token
}
