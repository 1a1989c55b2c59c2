package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "etcd.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "peer.sock")}
	for _, u := range []url.URL{client, peer} {
		if err := os.Remove(u.Path); err != nil && !os.IsNotExist(err) {
			return nil, "", fmt.Errorf("remove the old socket: %w", err)
		}
	}
	cfg := embed.NewConfig()
	cfg.Name = "rollcall"
	cfg.Dir = filepath.Join(dataDir, "etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	// The advertised peer URL is stored with the data; one that does not name
	// the socket's place lets the data directory move.
	advertised := url.URL{Scheme: "http", Host: "rollcall.invalid:2380"}
	cfg.AdvertisePeerUrls = []url.URL{advertised}
	cfg.InitialCluster = cfg.Name + "=" + advertised.String()
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

// socketDir is dataDir/run, or, where a socket's path would pass the kernel's
// 108 bytes, a directory of the system's temporary one.
func socketDir(dataDir string) (string, error) {
	dir := filepath.Join(dataDir, "run")
	if len(dir)+len("/peer.sock") > 100 {
		short, err := os.MkdirTemp("", "rollcall-")
		if err != nil {
			return "", fmt.Errorf("create a directory for sockets: %w", err)
		}
		dir = short
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a directory for sockets: %w", err)
	}
	return dir, os.Chmod(dir, 0o700)
}
