package upstream

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root     = "../.."
	document = root + "/docs/differences.md"
)

// TestTheDocumentIsTheTable holds the rows of docs/differences.md against the
// differences that are accepted here, and the tests they name against the tree.
func TestTheDocumentIsTheTable(t *testing.T) {
	known := map[string]accepted{}
	for _, a := range table {
		if _, ok := known[a.id]; ok {
			t.Errorf("%s is accepted twice", a.id)
		}
		known[a.id] = a
	}
	for id, row := range rows(t) {
		a, ok := known[id]
		if !ok {
			t.Errorf("the document has a row %s that is not accepted here", id)
		}
		delete(known, id)
		named, errs := pins(row)
		for _, err := range errs {
			t.Errorf("row %s names %s", id, err)
		}
		if named == 0 {
			t.Errorf("row %s names no test", id)
		}
		if shown := "`TestEachDifferenceShows`"; a.scenario == nil && strings.Contains(row, shown) {
			t.Errorf("row %s names %s, which has no scenario of it", id, shown)
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
		t.Errorf("of %d rows %d have an id of their own", lines, len(out))
	}
	return out
}

var code = regexp.MustCompile("`([^`]*)`")

// pins counts the tests and stories in a row's last column, each in the package
// named before it, and returns those that are not there.
func pins(row string) (named int, missing []string) {
	cells := strings.Split(strings.Trim(row, "| "), " | ")
	pkg := ""
	for _, m := range code.FindAllStringSubmatch(cells[len(cells)-1], -1) {
		word := m[1]
		if strings.Contains(word, "/") {
			pkg = word
			continue
		}
		named++
		if !pinned(pkg, word) {
			missing = append(missing, word+", which is neither a test nor a story of "+pkg)
		}
	}
	return named, missing
}

// pinned says whether a package has this test or story.
func pinned(pkg, name string) bool {
	dir := filepath.Join(root, pkg)
	if strings.HasPrefix(pkg, "core/") {
		dir = filepath.Join(root, "internal", pkg)
	}
	if !strings.HasPrefix(name, "Test") {
		_, err := os.Stat(filepath.Join(dir, "testdata", name+".txt"))
		return err == nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err == nil && strings.Contains("\n"+string(source), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
