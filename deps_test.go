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
	refused := []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/posthorn/posthorn/internal/testpg", "github.com/posthorn/posthorn/seal/"}
	output, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(output))
	if len(packages) < 10 {
		t.Fatalf("only %d packages: %v", len(packages), packages)
	}
	for _, path := range packages {
		isOf := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
		if path != "github.com/posthorn/posthorn" && !slices.ContainsFunc(allowed, isOf) || slices.ContainsFunc(refused, isOf) {
			t.Errorf("the library needs %s", path)
		}
	}
}
