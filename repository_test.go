package posthorn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// seed 000.65, 000.66: every option has a doc comment. The comments of tuning
// options name the cost of a higher and of a lower value, and the default.
func TestOptionsAreDocumented(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !regexp.MustCompile(`^[A-Z]\w*Config$|^Config$`).MatchString(spec.Name.Name) {
				return true
			}
			options, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			doc, line := "", 0
			for _, field := range options.Fields.List {
				switch {
				case field.Doc != nil:
					doc = field.Doc.Text()
				case files.Position(field.Pos()).Line != line+1:
					doc = "" // a field right below another one shares its comment
				}
				line = files.Position(field.End()).Line
				for _, name := range field.Names {
					docs[spec.Name.Name+"."+name.Name] = doc
				}
			}
			return false
		})
	}
	for option, doc := range docs {
		if doc == "" {
			t.Errorf("%s is not documented", option)
		}
	}
	tuning := []string{
		"Config.MaxConns", "Config.DrainFor",
		"GroupConfig.Concurrency", "GroupConfig.BatchSize", "GroupConfig.LeaseFor", "GroupConfig.IdlePoll", "GroupConfig.Slots",
	}
	tradeOff := regexp.MustCompile(`(?i)\b(more|fewer|longer|shorter|larger?|smaller?|how many)\b`)
	for _, option := range tuning {
		if doc := docs[option]; !tradeOff.MatchString(doc) || !regexp.MustCompile(`(?i)default`).MatchString(doc) {
			t.Errorf("%s names no cost or no default: %q", option, doc)
		}
	}
	for _, option := range slices.Concat(tuning, []string{
		"Config.DatabaseURL", "Config.Namespace", "Config.ApplicationName", "Config.Logger",
	}) {
		if _, ok := docs[option]; !ok {
			t.Errorf("%s does not exist", option)
		}
	}
}

// A program that imports this package gets the driver, the API of OpenTelemetry and their
// dependencies, but no dependencies of the command line or the server, and no SDKs.
func TestTheLibraryNeedsLittle(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"github.com/posthorn/posthorn/admin", "github.com/posthorn/posthorn/internal/", "github.com/posthorn/posthorn/schema", "github.com/posthorn/posthorn/seal",
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

// New users wait for the compiler, so the program does not contain large clients that
// few users need: those of Prometheus, Google and Azure.
func TestTheProgramCompilesQuickly(t *testing.T) {
	t.Parallel()
	for _, path := range dependencies(t, "./cmd/posthorn") {
		for _, refused := range []string{"github.com/prometheus/", "cloud.google.com/", "github.com/Azure/"} {
			if strings.HasPrefix(path, refused) {
				t.Errorf("the program needs %s", path)
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
