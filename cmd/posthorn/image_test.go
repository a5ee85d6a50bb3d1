package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testtls"
	"github.com/posthorn/posthorn/posthorntest"
)

// image is an image, and its files in a directory.
type image struct {
	root   string
	config imageConfig
}

type imageConfig struct {
	User, StopSignal     string
	Env, Entrypoint, Cmd []string
	ExposedPorts         map[string]struct{}
}

// buildImage builds deploy/Dockerfile as its head says. The certificates are those of this
// machine, and one more.
func buildImage(t *testing.T, certificate string) (built image) {
	t.Helper()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("there is no buildah; scripts/deps image installs it")
	}
	if os.Getuid() != 0 {
		t.Skip("only root starts an image without a container engine")
	}
	dist, store := t.TempDir(), t.TempDir()
	mustRun(t, exec.CommandContext(t.Context(), "../../scripts/release", dist, "linux/"+runtime.GOARCH))
	writeCertificates(t, filepath.Join(dist, "ca-certificates.crt"), "/etc/ssl/certs/ca-certificates.crt", certificate)
	buildah := func(args ...string) string {
		t.Helper()
		storage := []string{"--root", filepath.Join(store, "root"), "--runroot", filepath.Join(store, "run"), "--storage-driver", "vfs"}
		return strings.TrimSpace(mustRun(t, exec.CommandContext(t.Context(), "buildah", append(storage, args...)...)))
	}
	buildah("bud", "--isolation", "chroot", "-f", "../../deploy/Dockerfile", "-t", "posthorn", dist)
	var inspected struct{ OCIv1 struct{ Config imageConfig } }
	if err := json.Unmarshal([]byte(buildah("inspect", "--type", "image", "posthorn")), &inspected); err != nil {
		t.Fatal(err)
	}
	built.config = inspected.OCIv1.Config
	built.root = buildah("mount", buildah("from", "posthorn"))
	return built
}

func writeCertificates(t *testing.T, to string, from ...string) {
	t.Helper()
	var all []byte
	for _, file := range from {
		one, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one...)
	}
	if err := os.WriteFile(to, all, 0o644); err != nil {
		t.Fatal(err)
	}
}

// command runs the image's program as the image's user, who sees nothing but the image.
func (i image) command(t *testing.T, database string, args ...string) *exec.Cmd {
	t.Helper()
	var user, group uint32
	if _, err := fmt.Sscanf(i.config.User, "%d:%d", &user, &group); err != nil {
		t.Fatalf("the user %q: %v", i.config.User, err)
	}
	program := append(slices.Clone(i.config.Entrypoint), args...)
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Dir, cmd.Env = "/", append(slices.Clone(i.config.Env), "DATABASE_URL="+database)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: user, Gid: group}}
	return cmd
}

// The image is built, and started without a container engine: it migrates, makes a token,
// serves the API and the page, finds the certificates of authorities, and ends on its signal.
func TestImage(t *testing.T) {
	t.Parallel()
	files := testtls.New(t)
	built := buildImage(t, files.Cert)
	database := posthorntest.EmptyDatabase(t)
	command := func(args ...string) *exec.Cmd { return built.command(t, database, args...) }
	mustRun(t, command("migrate"))

	ports := slices.Collect(maps.Keys(built.config.ExposedPorts))
	if len(ports) != 1 {
		t.Fatalf("the image exposes %v", ports)
	}
	var port int
	if _, err := fmt.Sscanf(ports[0], "%d/tcp", &port); err != nil {
		t.Fatalf("the port %q: %v", ports[0], err)
	}
	serve := append(onAnyPort(t, built.config.Cmd, port), "--webhook-allow", "127.0.0.1")
	p, token := startsWithToken(t, command, serve, []string{"/healthz", "/readyz"})
	if status := statusOf(t, p.url+"/v1/groups", token); status != 200 {
		t.Errorf("GET /v1/groups answers %d", status)
	}
	if page := pageOf(t, p.url, token); !strings.Contains(page, "<h1") || !strings.Contains(page, "Overview") {
		t.Errorf("the page is %s", page)
	}

	certificate, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	receiver.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	receiver.StartTLS()
	t.Cleanup(receiver.Close)
	mustRun(t, command("webhooks", "create", "crm", receiver.URL))
	mustRun(t, command("webhooks", "test", "crm"))

	if built.config.StopSignal != "SIGTERM" {
		t.Errorf("the image is stopped with %s", built.config.StopSignal)
	}
	p.tell(t, syscall.SIGTERM)
	if err := p.await(t); err != nil {
		t.Errorf("serve ended with %v: %s", err, p.stderr)
	}
}

// pageOf returns the first page, for a person who has signed in.
func pageOf(t *testing.T, url, token string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "posthorn_token", Value: token})
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("GET %s answers %s, %v", url, answer.Status, err)
	}
	return string(body)
}
