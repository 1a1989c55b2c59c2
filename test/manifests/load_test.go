package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// split reads the objects of a manifest: empty documents are left out and lists
// are opened.
func split(raw []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		var content map[string]any
		if err := yaml.Unmarshal(doc, &content); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(content) == 0 {
			continue
		}
		if out, err = flatten(out, &unstructured.Unstructured{Object: content}); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func flatten(out []*unstructured.Unstructured, o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if !o.IsList() {
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			return nil, errors.New("an object without kind or apiVersion")
		}
		return append(out, o), nil
	}
	err := o.EachListItem(func(item runtime.Object) error {
		var err error
		out, err = flatten(out, item.(*unstructured.Unstructured))
		return err
	})
	return out, err
}

// sources are the files to test: the project's own, then the shared ones where
// they exist.
func sources(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*.yaml", "../../../shared/manifests/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d files", pattern, len(found))
		out = append(out, found...)
	}
	return out
}

func read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := split(raw)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return objects
}

func TestSplit(t *testing.T) {
	objects, err := split([]byte(`# only a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  text: |
    a line
     --- not a separator
---
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: b}
- apiVersion: apps/v1
  kind: DaemonSetList
  items:
  - apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: c}
---
# the end
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+"/"+o.GetName())
	}
	if want := "[ConfigMap/a Service/b DaemonSet/c]"; fmt.Sprint(got) != want {
		t.Errorf("split = %v, want %s", got, want)
	}
	for _, bad := range []string{"a: [", "just: text", "- a\n- b"} {
		if _, err := split([]byte(bad)); err == nil {
			t.Errorf("split(%q) is no error", bad)
		}
	}
}

// TestOwnManifests holds what the project promises of its own manifests.
func TestOwnManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 25 {
		t.Errorf("%d files in testdata, want 25 or more", len(files))
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, examples...) {
		n := 0
		for _, o := range read(t, file) {
			if o.GetKind() == "DaemonSet" {
				n++
			}
		}
		if n == 0 {
			t.Errorf("%s has no DaemonSet", file)
		}
	}
}
