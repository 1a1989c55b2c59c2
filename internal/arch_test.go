package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rollcall-dev/rollcall/"

// mayImport is the table of who may import whom, by directory below the module.
// What is not listed for a package it must not import.
var mayImport = map[string][]string{
	"internal/core/fit":       {},
	"internal/core/cluster":   {},
	"internal/core/rollout":   {},
	"internal/core/podstate":  {"internal/core/fit"},
	"internal/core/daemonset": {"internal/core/fit", "internal/core/rollout", "internal/core/podstate"},
	"internal/core/lint":      {"internal/core/fit", "internal/core/rollout", "internal/core/daemonset", "internal/core/cluster"},
	"internal/core/explain":   {"internal/core/fit", "internal/core/rollout", "internal/core/podstate", "internal/core/daemonset", "internal/core/cluster", "internal/core/lint"},
	"internal/engine":         {"internal/core/fit", "internal/core/rollout", "internal/core/daemonset"},
	"internal/source":         {"internal/core/cluster"},
	"internal/cli":            {"internal/core/fit", "internal/core/rollout", "internal/core/daemonset", "internal/core/cluster", "internal/core/explain", "internal/core/lint", "internal/source"},
	"internal/controlplane":   {},
	"internal/simnode":        {},
	"internal/node":           {},
	"internal/node/kubelet":   {},
	"cmd/kubectl-rollcall":    {"internal/cli"},
}

// coreImports is all that core may import directly, besides core itself.
var coreImports = []string{
	"bytes", "cmp", "encoding/binary", "encoding/json", "fmt", "hash/fnv", "maps", "math", "slices", "sort", "strconv", "strings", "time",
	"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/component-helpers/", "k8s.io/pod-security-admission/", "k8s.io/klog/v2",
}

func TestTheHouseKeepsItsWalls(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir("..", func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "tools" || e.Name() == "data") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel("..", file)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(name))
		seen[dir] = true
		for _, fault := range faults(filepath.ToSlash(name), src) {
			t.Error(fault)
		}
		if lines := strings.Count(string(src), "\n"); lines > 400 {
			t.Errorf("%s has %d lines; the ceiling is 400", name, lines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range seen {
		if strings.HasPrefix(dir, "internal/") {
			if _, err := os.Stat(filepath.Join("..", dir, "doc.go")); err != nil {
				t.Errorf("%s has no doc.go that says its purpose and what it must not do", dir)
			}
		}
	}
	if len(seen) < len(mayImport) {
		t.Errorf("only %d packages were looked at", len(seen))
	}
}

// TestFaultsAreSeen shows that the rules bite.
func TestFaultsAreSeen(t *testing.T) {
	for src, want := range map[string]string{
		`package fit; import "os"`: "imports os",
		`package fit; import "github.com/rollcall-dev/rollcall/internal/engine"`:      "imports internal/engine",
		`package fit; import "time"; func f() { _ = time.Now() }`:                     "time.Now",
		`package fit; func f() { go f() }`:                                            "go statement",
		`package fit; func f() { select {} }`:                                         "select",
		`package fit; func f(c chan int) {}`:                                          "channel",
		`package fit; func f() { m := map[string]int{}; for k := range m { _ = k } }`: "range over the map m",
	} {
		got := faults("internal/core/fit/x.go", []byte(src))
		if len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%s: got %q, want a fault with %q", src, got, want)
		}
	}
	if got := faults("internal/controlplane/x.go", []byte(`package controlplane; import "github.com/rollcall-dev/rollcall/internal/engine"`)); len(got) == 0 {
		t.Error("the control plane may import the engine")
	}
	if got := faults("internal/core/fit/x.go", []byte(`package fit; import "time"; type t = time.Time`)); len(got) != 0 {
		t.Errorf("sound code is refused: %q", got)
	}
}

func faults(name string, src []byte) []string {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		return []string{err.Error()}
	}
	dir := path.Dir(name)
	inCore := strings.HasPrefix(dir, "internal/core/")
	var out []string
	for _, imp := range file.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		inner, ours := strings.CutPrefix(p, module)
		allowed, known := mayImport[dir]
		switch {
		case ours && strings.HasPrefix(inner, "cmd/"), ours && known && !slices.Contains(allowed, inner):
			out = append(out, fmt.Sprintf("%s imports %s, which the table does not allow", name, inner))
		case ours && !known && strings.HasPrefix(dir, "internal/"):
			out = append(out, fmt.Sprintf("%s: package %s is not in the table of imports", name, dir))
		case inCore && !ours && !slices.ContainsFunc(coreImports, func(a string) bool { return a == p || strings.HasSuffix(a, "/") && strings.HasPrefix(p, a) }):
			out = append(out, fmt.Sprintf("%s imports %s, which core must not", name, p))
		}
	}
	if inCore {
		out = append(out, bans(name, file)...)
	}
	return out
}

// bans finds what makes a computation depend on more than its input. Ranging over
// a map is seen where the map is made or declared in the same file.
func bans(name string, file *ast.File) []string {
	var out []string
	add := func(what string) { out = append(out, name+": "+what+" is banned in core") }
	maps := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, r := range n.Rhs {
				if lit, ok := r.(*ast.CompositeLit); ok && i < len(n.Lhs) {
					if _, ok := lit.Type.(*ast.MapType); ok {
						if id, ok := n.Lhs[i].(*ast.Ident); ok {
							maps[id.Name] = true
						}
					}
				}
			}
		case *ast.Field:
			if _, ok := n.Type.(*ast.MapType); ok {
				for _, id := range n.Names {
					maps[id.Name] = true
				}
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add("a go statement")
		case *ast.SelectStmt:
			add("select")
		case *ast.ChanType:
			add("a channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && (n.Sel.Name == "Now" || n.Sel.Name == "Since" || n.Sel.Name == "Until") {
				add("time." + n.Sel.Name)
			}
		case *ast.RangeStmt:
			var id string
			switch x := n.X.(type) {
			case *ast.Ident:
				id = x.Name
			case *ast.SelectorExpr:
				id = x.Sel.Name
			}
			if maps[id] {
				add("range over the map " + id)
			}
		}
		return true
	})
	return out
}
