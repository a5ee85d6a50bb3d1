// Package surface has the exported names of the Go packages that are stable, see docs/stability.md: a change of one shows
// in the diff of a commit.
package surface

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testgolden"
)

//go:generate go test -run ^Test(Go|Metrics)$ . -update

const root = "../.."

// unstable are the folders whose packages no other program uses, or only tests.
var unstable = []string{"internal", "localpg", "posthorntest", "cmd", "bench", "testdata", "node_modules", ".git", ".cache", "scripts", "docs"}

func TestGo(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir():
			return err
		case slices.Contains(unstable, entry.Name()):
			return filepath.SkipDir
		}
		lines := exported(t, path)
		if len(lines) > 0 {
			name, _ := filepath.Rel(root, path)
			text.WriteString("package " + filepath.ToSlash(name) + "\n\n" + strings.Join(lines, "\n") + "\n\n")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testgolden.Check(t, "testdata/go.txt", text.String())
}

// exported returns the declarations of a package without bodies, comments and names that are not exported.
func exported(t *testing.T, dir string) (lines []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, declaration := range file.Decls {
			lines = append(lines, declared(t, declaration)...)
		}
	}
	slices.Sort(lines)
	return lines
}

func declared(t *testing.T, declaration ast.Decl) (lines []string) {
	t.Helper()
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return nil
		}
		d.Body = nil
		return []string{printed(t, d)}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if d.Tok == token.IMPORT {
				continue
			}
			if value, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
				value.Values = nil
			}
			lines = append(lines, d.Tok.String()+" "+printed(t, spec))
		}
	}
	return lines
}

// receiver is the name of the type of a method.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func printed(t *testing.T, node any) string {
	t.Helper()
	var b bytes.Buffer
	if err := (&printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}).Fprint(&b, token.NewFileSet(), node); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
