package controlplane

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	restore "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const (
	snapshotDB = "etcd.db" // etcd's own snapshot, which etcdutl can read
	// revisionBump lifts the restored revisions above all that clients may have
	// seen after the snapshot, so that their caches never run backwards.
	revisionBump = 1_000_000_000
)

// SaveSnapshot writes a cluster's whole state to a file (0600): etcd's snapshot and
// the keys without which it could not be read or joined, as one tar archive. The
// control plane may be running; where it is not, etcd is started for the moment,
// and the caller must hold the directory.
func SaveSnapshot(ctx context.Context, dataDir, file string, running bool) error {
	if err := checkDataVersion(dataDir, false); err != nil {
		return err
	}
	endpoint, err := etcdEndpoint(dataDir)
	if err != nil {
		return err
	}
	if !running {
		etcd, _, err := startEtcd(ctx, dataDir)
		if err != nil {
			return err
		}
		defer func() {
			etcd.Close()
			<-etcd.Server.StopNotify()
			removeSockets(dataDir)
		}()
	}
	tmp, err := os.MkdirTemp(filepath.Dir(file), ".rollcall-snapshot-")
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	defer os.RemoveAll(tmp)
	db := filepath.Join(tmp, snapshotDB)
	if _, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second}, db); err != nil {
		return fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	part := filepath.Join(tmp, "archive")
	if err := writeArchive(part, dataDir, db); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// writeArchive puts the data directory's version first: who reads it can then
// refuse before anything is unpacked.
func writeArchive(file, dataDir, db string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = addFile(w, "version", filepath.Join(dataDir, "version"))
	keys, globErr := filepath.Glob(filepath.Join(dataDir, "pki", "*"))
	err = errors.Join(err, globErr)
	for _, k := range keys {
		if name := filepath.Base(k); strings.HasSuffix(name, ".crt") || strings.HasSuffix(name, ".key") {
			err = errors.Join(err, addFile(w, "pki/"+name, k))
		}
	}
	err = errors.Join(err, addFile(w, snapshotDB, db), w.Close(), f.Sync())
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

func addFile(w *tar.Writer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// RestoreSnapshot makes a data directory out of a snapshot. The directory must hold
// no cluster; it stays without one if the snapshot cannot be read whole.
func RestoreSnapshot(dataDir, file string) error {
	for _, part := range []string{"etcd", "pki", "version"} {
		if _, err := os.Lstat(filepath.Join(dataDir, part)); err == nil {
			return fmt.Errorf("%s holds a cluster already: remove it with rollcall reset, or restore into another --data-dir", dataDir)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	tmp, err := os.MkdirTemp(dataDir, ".restore-")
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := unpack(f, tmp); err != nil {
		return fmt.Errorf("%s is not a snapshot of rollcall: %w", file, err)
	}
	if err := checkDataVersion(tmp, false); err != nil {
		return err
	}
	member := etcdMember(dataDir)
	if err := restore.NewV3(zap.NewNop()).Restore(restore.RestoreConfig{
		SnapshotPath: filepath.Join(tmp, snapshotDB), OutputDataDir: filepath.Join(tmp, "etcd"),
		Name: member.Name, PeerURLs: []string{member.AdvertisePeerUrls[0].String()}, InitialCluster: member.InitialCluster,
		InitialClusterToken: member.InitialClusterToken, RevisionBump: revisionBump, MarkCompacted: true,
	}); err != nil {
		return fmt.Errorf("restore etcd from %s: %w", file, err)
	}
	for _, part := range []string{"pki", "etcd", "version"} { // the version last: with it the directory is a cluster's
		if err := os.Rename(filepath.Join(tmp, part), filepath.Join(dataDir, part)); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}

// unpack writes the known files of a snapshot, and no others.
func unpack(in io.Reader, dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		key, isKey := strings.CutPrefix(h.Name, "pki/")
		if h.Typeflag != tar.TypeReg || h.Name != "version" && h.Name != snapshotDB && (!isKey || key != filepath.Base(key)) {
			return fmt.Errorf("it holds %q", h.Name)
		}
		out, err := os.OpenFile(filepath.Join(dir, h.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, r)
		if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
			return err
		}
		seen[h.Name] = true
	}
	for _, want := range []string{"version", snapshotDB, "pki/ca.crt", "pki/ca.key", "pki/service-account.key"} {
		if !seen[want] {
			return fmt.Errorf("it lacks %s: %w", want, fs.ErrNotExist)
		}
	}
	return nil
}
