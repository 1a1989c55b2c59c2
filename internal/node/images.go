package node

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	// PauseImage holds the namespaces of a pod; Start builds and imports it.
	PauseImage = "rollcall.dev/pause:1"
	// NodeExporterImage is the name that people's manifests use.
	NodeExporterImage = "quay.io/prometheus/node-exporter:v1.8.2"

	imageUser      = "65534:65534"
	imageNamespace = "k8s.io" // containerd's, for what the kubelet may see
)

// StandardImages writes the images that need no registry to archives in dir, out
// of the programs in binDir, and returns the archives. node_exporter may be absent.
func StandardImages(binDir, dir string) ([]string, error) {
	var out []string
	for _, i := range []struct {
		ref, bin, entrypoint string
		optional             bool
	}{
		{ref: PauseImage, bin: "pause", entrypoint: "/pause"},
		{ref: NodeExporterImage, bin: "node_exporter", entrypoint: "/bin/node_exporter", optional: true},
	} {
		bin, file := filepath.Join(binDir, i.bin), filepath.Join(dir, i.bin+".tar")
		if _, err := os.Stat(bin); i.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !newer(file, bin) {
			if err := WriteImage(file, i.ref, map[string]string{i.entrypoint: bin}, []string{i.entrypoint}); err != nil {
				return nil, err
			}
		}
		out = append(out, file)
	}
	return out, nil
}

// newer reports whether a file was written after the one that it is made from.
func newer(file, source string) bool {
	a, errA := os.Stat(file)
	b, errB := os.Stat(source)
	return errA == nil && errB == nil && a.ModTime().After(b.ModTime())
}

// WriteImage writes an archive, as "docker save" does, with one image of the name
// ref. files maps paths in the image to files of this machine, all of which become
// executable. It runs as a user without rights. The same input gives the same bytes.
func WriteImage(file, ref string, files map[string]string, entrypoint []string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image name %q: %w", ref, err)
	}
	layer, err := layerOf(files)
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: time.Unix(0, 0).UTC()},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: entrypoint, User: imageUser, WorkingDir: "/",
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
	})
	if err == nil {
		img, err = mutate.AppendLayers(img, l)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	part := file + ".part"
	if err := tarball.WriteToFile(part, tag, img); err != nil {
		return fmt.Errorf("write image %s: %w", ref, err)
	}
	return os.Rename(part, file)
}

// layerOf is a tar stream of files and the directories that they are in.
func layerOf(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{"": true, ".": true}
	var mkdir func(dir string) error
	mkdir = func(dir string) error {
		if made[dir] {
			return nil
		}
		if err := mkdir(strings.TrimSuffix(path.Dir(dir), ".")); err != nil {
			return err
		}
		made[dir] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[p])
		if err != nil {
			return nil, err
		}
		inside := strings.TrimPrefix(path.Clean("/"+p), "/")
		if err := mkdir(path.Dir(inside)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

// The ways in which containerd puts the layers of an image together.
const (
	overlay = "overlayfs"
	native  = "native" // copies; for a data directory that is an overlay itself, which cannot carry another
)

func importImages(ctx context.Context, socket, snapshotter string, files []string) ([]string, error) {
	client, err := containerd.New(socket)
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", socket, err)
	}
	defer client.Close()
	ctx = namespaces.WithNamespace(ctx, imageNamespace)
	var names []string
	for _, file := range files {
		some, err := importImage(ctx, client, snapshotter, file)
		if err != nil {
			return names, fmt.Errorf("import %s: %w", file, err)
		}
		names = append(names, some...)
	}
	return names, nil
}

func importImage(ctx context.Context, client *containerd.Client, snapshotter, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	images, err := client.Import(ctx, f, containerd.WithImageLabels(map[string]string{"io.cri-containerd.pinned": "pinned"}))
	if err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, errors.New("it holds no image with a name: write it with docker save or podman save NAME:TAG")
	}
	var names []string
	for _, i := range images {
		if err := containerd.NewImage(client, i).Unpack(ctx, snapshotter); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", i.Name, err)
		}
		names = append(names, i.Name)
	}
	return names, nil
}

// ImportImages brings archives into the node that runs on a data directory, and
// pins what is in them: the kubelet never removes a pinned image, which it could not
// pull again. It returns the names of the images of each archive.
func ImportImages(ctx context.Context, dataDir string, files []string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "box.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no node has run on %s: start one with rollcall up, and name its --data-dir", dataDir)
	}
	if err != nil {
		return nil, err
	}
	var spec boxSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("read box.json: %w", err)
	}
	// Through the open directory, since a path to a socket has at most 107 bytes.
	run, err := os.Open(filepath.Join(dataDir, "run"))
	if err != nil {
		return nil, fmt.Errorf("no node runs on %s: start it with rollcall up: %w", dataDir, err)
	}
	defer run.Close()
	socket := fmt.Sprintf("/proc/self/fd/%d/%s", run.Fd(), filepath.Base(runtimeSock))
	if _, err := os.Stat(socket); err != nil {
		return nil, fmt.Errorf("no node runs on %s: start it with rollcall up", dataDir)
	}
	return importImages(ctx, socket, spec.Snapshotter, files)
}
