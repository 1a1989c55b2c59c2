package controlplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts etcd on unix sockets in a directory that only this user can
// enter: a pod in the host's network must not reach it. Writes are synced.
func startEtcd(ctx context.Context, dataDir string) (*embed.Etcd, string, error) {
	sockets, err := socketDir(dataDir)
	if err != nil {
		return nil, "", err
	}
	if err := ownDir(sockets); err != nil {
		return nil, "", fmt.Errorf("make a directory for sockets: %w", err)
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, clientSocket)}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockets, peerSocket)}
	for _, u := range []url.URL{client, peer} {
		if err := os.Remove(u.Path); err != nil && !os.IsNotExist(err) {
			return nil, "", fmt.Errorf("remove the old socket: %w", err)
		}
	}
	cfg := etcdMember(dataDir)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls = []url.URL{peer}
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{filepath.Join(dataDir, "logs", "etcd.log")}
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "5m"
	cfg.QuotaBackendBytes = 8 << 30
	// A single member elects itself; the defaults wait for others.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, client.String(), nil
	case err := <-e.Err():
		e.Close()
		return nil, "", fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	case <-time.After(60 * time.Second):
		e.Close()
		return nil, "", fmt.Errorf("etcd in %s did not become ready within 60 s; see %s", cfg.Dir, cfg.LogOutputs[0])
	case <-ctx.Done():
		e.Close()
		return nil, "", ctx.Err()
	}
}

// etcdMember is who the single member of a data directory is. What is stored with
// the data, the peer URL, does not name a place, so that the directory can move.
func etcdMember(dataDir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "rollcall"
	cfg.Dir = filepath.Join(dataDir, "etcd")
	advertised := url.URL{Scheme: "http", Host: "rollcall.invalid:2380"}
	cfg.AdvertisePeerUrls = []url.URL{advertised}
	cfg.InitialCluster = cfg.Name + "=" + advertised.String()
	return cfg
}

const (
	clientSocket = "etcd.sock"
	peerSocket   = "peer.sock"
	maxSocket    = 100 // bytes of a socket's path; the kernel's limit is 107
)

// socketDir is dataDir/run, or, where a socket's path would be too long for the
// kernel, a directory of the system's temporary one that is named after it.
func socketDir(dataDir string) (string, error) {
	dir := filepath.Join(dataDir, "run")
	if len(filepath.Join(dir, clientSocket)) <= maxSocket {
		return dir, nil
	}
	resolved, err := filepath.EvalSymlinks(dataDir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(resolved))
	return filepath.Join(os.TempDir(), fmt.Sprintf("rollcall-%x", sum[:8])), nil
}

// ownDir makes a directory that this user alone can enter, and refuses one that
// somebody else has put there.
func ownDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of this user: remove it", dir)
	}
	return os.Chmod(dir, 0o700)
}

// etcdEndpoint is where the etcd of a data directory listens while it runs.
func etcdEndpoint(dataDir string) (string, error) {
	dir, err := socketDir(dataDir)
	return "unix://" + filepath.Join(dir, clientSocket), err
}

// removeSockets removes what startEtcd made outside of etcd's own directory.
func removeSockets(dataDir string) {
	if dir, err := socketDir(dataDir); err == nil {
		_ = os.RemoveAll(dir)
	}
}
