package upstream

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root     = "../.."
	document = root + "/docs/differences.md"
	stories  = root + "/internal/core/daemonset/testdata"
)

// TestTheDocumentIsTheTable holds the rows of docs/differences.md against the
// differences that are accepted here, and the tests they name against the tree.
func TestTheDocumentIsTheTable(t *testing.T) {
	known := map[string]accepted{}
	for _, a := range table {
		known[a.id] = a
	}
	tests := testsOfTheTree(t)
	for id, row := range rows(t) {
		a, ok := known[id]
		if !ok {
			t.Errorf("the document has a row %s that is not accepted here", id)
		}
		delete(known, id)
		named := namedTests(row)
		if len(named) == 0 && a.scenario == nil {
			t.Errorf("row %s: no test shows it, here or elsewhere", id)
		}
		for _, name := range named {
			if !tests[name] {
				t.Errorf("row %s names %s, which is neither a test nor a story", id, name)
			}
		}
	}
	for id := range known {
		t.Errorf("%s is accepted, but the document does not say so", id)
	}
}

// rows are the lines of the document's table by id.
func rows(t *testing.T) map[string]string {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*$").FindAllStringSubmatch(string(text), -1) {
		if out[m[1]] != "" {
			t.Errorf("the document has the id %s twice", m[1])
		}
		out[m[1]] = m[0]
	}
	if lines := strings.Count(string(text), "\n| ") - 1; lines != len(out) {
		t.Errorf("of %d rows %d have an id", lines, len(out))
	}
	return out
}

// namedTests are the tests and stories in a row's last column.
func namedTests(row string) []string {
	cells := strings.Split(strings.Trim(row, "| "), " | ")
	var out []string
	for _, m := range regexp.MustCompile("`(Test\\w+|[a-z0-9]+(?:_[a-z0-9]+)+)`").FindAllStringSubmatch(cells[len(cells)-1], -1) {
		out = append(out, m[1])
	}
	return out
}

// testsOfTheTree are the names of all tests, and of the stories of core.
func testsOfTheTree(t *testing.T) map[string]bool {
	out := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "data") {
			return filepath.SkipDir
		}
		if filepath.Dir(path) == filepath.Clean(stories) && strings.HasSuffix(path, ".txt") {
			out[strings.TrimSuffix(e.Name(), ".txt")] = true
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			out[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
