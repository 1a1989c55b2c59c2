package node

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWriteImage(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "program")
	if err := os.WriteFile(bin, []byte("#!"), 0o700); err != nil {
		t.Fatal(err)
	}
	var archives [2][]byte
	for i := range archives {
		file := filepath.Join(dir, "image.tar")
		if err := WriteImage(file, NodeExporterImage, map[string]string{"/usr/bin/x": bin, "/bin/node_exporter": bin}, []string{"/bin/node_exporter"}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = raw
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same input gives different archives")
	}
	var manifest []struct{ RepoTags []string }
	for r := tar.NewReader(bytes.NewReader(archives[0])); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "manifest.json" {
			if err := json.NewDecoder(r).Decode(&manifest); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{NodeExporterImage}) {
		t.Errorf("the archive's manifest names %+v, not %s", manifest, NodeExporterImage)
	}
}

func TestLayerHasEachDirectoryOnce(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(bin, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	raw, err := layerOf(map[string]string{"/usr/bin/a": bin, "/usr/b": bin, "/c": bin})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if want := []string{"c", "usr/", "usr/b", "usr/bin/", "usr/bin/a"}; !sameSet(names, want) {
		t.Errorf("layer holds %q, want %q", names, want)
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func TestConfigErrorsNameTheField(t *testing.T) {
	good := Config{Name: "n1", DataDir: t.TempDir(), BinDir: "/bin"}
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Name = "No_Name" }, "node name"},
		{func(c *Config) { c.DataDir = "" }, "data directory"},
		{func(c *Config) { c.PodCIDR = "fd00::/64" }, "pod addresses"},
		{func(c *Config) { c.KubeletCommand = []string{"x"} }, "bootstrap token"},
		{func(c *Config) { c.Images = []string{"/none.tar"} }, "image archive"},
		{func(*Config) {}, ""},
	} {
		c := good
		tc.change(&c)
		_, err := c.complete()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", c, err, tc.want)
		}
	}
}

func TestForgetOtherCluster(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	c := Config{Name: "n1", DataDir: dir, CAFile: ca, ServerURL: "https://a"}
	kubeconfig := c.dir("kubelet", "kubeconfig")
	if err := os.MkdirAll(filepath.Dir(kubeconfig), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := func(content string) bool {
		t.Helper()
		if err := os.WriteFile(ca, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := forgetOtherCluster(c); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(kubeconfig)
		return err == nil
	}
	kept("one")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !kept("one") {
		t.Error("the identity is gone although the cluster is the same")
	}
	if kept("two") {
		t.Error("the identity of another cluster is kept")
	}
}
