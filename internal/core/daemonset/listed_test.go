package daemonset

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStoriesAreListed holds testdata/README.md against the stories, the words of
// their script and the tests that it names.
func TestStoriesAreListed(t *testing.T) {
	page, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, path := range stories {
		exists[strings.TrimSuffix(filepath.Base(path), ".txt")] = false
	}
	tests := testsOfTheTree(t)
	for _, name := range regexp.MustCompile("`([a-z0-9]+(?:_[a-z0-9]+)+)`").FindAllStringSubmatch(string(page), -1) {
		if _, ok := exists[name[1]]; !ok {
			t.Errorf("the page names the story %s, which does not exist", name[1])
		}
		exists[name[1]] = true
	}
	for _, name := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !tests[name[1]] {
			t.Errorf("the page names the test %s, which does not exist", name[1])
		}
	}
	for name, listed := range exists {
		if !listed {
			t.Errorf("the story %s is not on the page", name)
		}
	}
	for word := range changes {
		if !strings.Contains(string(page), "| `"+word+"`") && !strings.Contains(string(page), "| `"+word+" ") {
			t.Errorf("the page does not explain the word %s", word)
		}
	}
}

// testsOfTheTree are the names of all tests of this repository.
func testsOfTheTree(t *testing.T) map[string]bool {
	out := map[string]bool{}
	find := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := e.Name(); e.IsDir() && (name == ".git" || name == "data" || name == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		for _, f := range find.FindAllSubmatch(src, -1) {
			out[string(f[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// whateverTheStrategy are stories without a change of the template: they go the
// same way with OnDelete.
var whateverTheStrategy = []string{
	"a_doubled_revision_goes_and_only_its_pods_are_relabelled",
	"a_failed_pod_among_duplicates_goes_with_them",
	"a_node_that_is_not_ready_gets_its_pod",
	"a_node_that_rejects_every_pod_is_asked_ever_more_rarely",
	"a_pod_deleted_by_hand_comes_back",
	"a_pod_that_cannot_be_bound_waits_with_its_reason",
	"a_pod_that_ended_is_replaced_even_if_its_object_stays",
	"a_revision_name_that_is_taken_moves_the_collision_count",
	"a_taint_that_goes_brings_the_pod_back",
	"affinity_excludes_and_names_the_label",
	"any_of_several_affinity_terms_admits_a_node",
	"bound_pods_of_a_missing_node_are_left",
	"duplicates_leave_the_oldest",
	"failed_pod_is_replaced_with_backoff",
	"node_being_deleted_gets_no_new_pod",
	"one_pod_on_every_eligible_node",
	"orphans_are_adopted_with_their_revision",
	"refused_pods_leave_the_other_nodes_alone",
}

func TestStoriesHoldWithOnDelete(t *testing.T) {
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		t.Skip("the answers are written by TestStories")
	}
	for _, name := range whateverTheStrategy {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			c.strategy("OnDelete", "", "", "", "")
			datadriven.RunTest(t, "testdata/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string { return c.run(words{t, d}) })
		})
	}
}
