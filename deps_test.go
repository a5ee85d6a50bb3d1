package posthorn_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What a program gets with this package: the driver, the API of OpenTelemetry and
// what those need. The command line, servers and SDKs must not reach it.
func TestTheLibraryNeedsLittle(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"github.com/posthorn/posthorn/internal/", "github.com/posthorn/posthorn/schema", "github.com/posthorn/posthorn/seal",
		"github.com/jackc/", "golang.org/x/sync/", "golang.org/x/text/",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr/", "github.com/cespare/xxhash/",
	}
	refused := []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/posthorn/posthorn/internal/test", "github.com/posthorn/posthorn/seal/"}
	for _, path := range dependencies(t, ".") {
		isOf := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
		if path != "github.com/posthorn/posthorn" && !slices.ContainsFunc(allowed, isOf) || slices.ContainsFunc(refused, isOf) {
			t.Errorf("the library needs %s", path)
		}
	}
}

// The program that make up starts first is there within a minute, compiled from
// nothing: it is without the clients of brokers, object storage, key services and
// Prometheus, and without the downloader of Postgres. Others need them.
func TestTheSmallProgramIsSmall(t *testing.T) {
	t.Parallel()
	const program = "./cmd/posthorn"
	large := map[string][]string{
		program: {
			"github.com/redis/", "github.com/nats-io/", "github.com/aws/", "github.com/hashicorp/", "gocloud.dev/", "google.golang.org/grpc",
			"github.com/fergusstrange/", "github.com/lib/pq", "github.com/xi2/xz",
		},
		"./prometheus": {"github.com/prometheus/", "google.golang.org/protobuf/"},
	}
	small := dependencies(t, "-tags", "small", program)
	for needs, prefixes := range large {
		whole := dependencies(t, needs)
		for _, prefix := range prefixes {
			isOf := func(path string) bool { return strings.HasPrefix(path, prefix) }
			if slices.ContainsFunc(small, isOf) {
				t.Errorf("the small program needs %s", prefix)
			}
			if !slices.ContainsFunc(whole, isOf) {
				t.Errorf("%s does not need %s", needs, prefix)
			}
		}
	}
}

func dependencies(t *testing.T, args ...string) []string {
	t.Helper()
	list := []string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}
	output, err := exec.Command("go", append(list, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(output))
	if len(packages) < 10 {
		t.Fatalf("only %d packages: %v", len(packages), packages)
	}
	return packages
}
