package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config is what a control plane is started from.
type Config struct {
	DataDir  string    // absolute; etcd's data, keys, kubeconfigs
	Address  string    // HOST:PORT of the API
	Lean     bool      // only the controllers that agents need, no Deployments
	AuditLog string    // file, "" for none
	Accounts []Account // of other parts of this process, see Server.ClientConfig
	// DaemonSetController runs upstream's own; without it somebody else keeps the DaemonSets.
	DaemonSetController bool
	// PlacedElsewhere says which pods the scheduler leaves to others; nil for none.
	PlacedElsewhere func(*corev1.Pod) bool
	Warners         map[schema.GroupVersionKind]Warner // what is said when such an object is applied
}

// Server is a running control plane.
type Server struct {
	cfg      Config
	etcd     *embed.Etcd
	api      *apiServer
	ids      struct{ controllers, scheduler Identity }
	accounts []Identity // of Config.Accounts, in their order
	errs     chan error
}

// AdminKubeconfig is the file with which people reach the API.
func (c Config) AdminKubeconfig() string { return filepath.Join(c.DataDir, "admin.kubeconfig") }

// URL is where the API is reached.
func (c Config) URL() string { return "https://" + c.Address }

// CAFile is the certificate by which the API is known.
func (c Config) CAFile() string { return filepath.Join(c.DataDir, "pki", "ca.crt") }

func (c Config) auditPolicy() string { return filepath.Join(c.DataDir, "audit-policy.yaml") }

// advertise is the address put into the `kubernetes` Service's endpoints. It
// cannot be a loopback address, by the API's validation.
func (c Config) advertise() net.IP {
	host, _, _ := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
		return ip
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP
		}
	}
	return net.IPv4(192, 0, 2, 1) // TEST-NET-1: a machine without a network
}

func (c Config) certAddresses() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 43, 0, 1), c.advertise()}
	host, _, _ := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		ips = append(ips, ip)
	}
	return ips
}

// Start brings the control plane up and returns once /readyz is 200 and the
// rights of nodes and of the given accounts are in place. Ending ctx ends
// everything but etcd, which Stop ends last.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	for _, d := range []string{cfg.DataDir, filepath.Join(cfg.DataDir, "logs")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create the data directory: %w", err)
		}
	}
	if err := checkDataVersion(cfg.DataDir, true); err != nil {
		return nil, err
	}
	if err := CheckPort(cfg.Address); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, errs: make(chan error, 8)}
	s.ids.controllers, s.ids.scheduler = controllerManager, scheduler
	keys := pki{dir: filepath.Join(cfg.DataDir, "pki")}
	if err := keys.ensure(cfg.certAddresses()); err != nil {
		return nil, err
	}
	tokens := keys.path("in-process-tokens.csv")
	ids := []*Identity{&s.ids.controllers, &s.ids.scheduler}
	s.accounts = make([]Identity, len(cfg.Accounts))
	for i, a := range cfg.Accounts {
		s.accounts[i] = a.identity()
		ids = append(ids, &s.accounts[i])
	}
	if err := issueTokens(tokens, ids); err != nil {
		return nil, err
	}
	if err := s.writeFiles(keys); err != nil {
		return nil, err
	}
	if err := s.start(ctx, keys, tokens); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, keys pki, tokens string) error {
	etcd, endpoint, err := startEtcd(ctx, s.cfg.DataDir)
	if err != nil {
		return err
	}
	s.etcd = etcd
	if s.api, err = startAPIServer(ctx, s.cfg, keys, endpoint, tokens); err != nil {
		return err
	}
	go func() {
		s.failed("API server", <-s.api.done)
		close(s.api.gone)
	}()
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if err := s.bootstrap(ctx); err != nil {
		return err
	}
	schedConfig := keys.path("kube-scheduler.kubeconfig")
	kcmConfig := keys.path("kube-controller-manager.kubeconfig")
	if err := s.startControllers(ctx, keys, kcmConfig); err != nil {
		return err
	}
	return s.startScheduler(ctx, schedConfig)
}

func (s *Server) writeFiles(keys pki) error {
	admin, err := certUser(keys, "admin")
	if err != nil {
		return fmt.Errorf("read the admin certificate: %w", err)
	}
	files := map[string]*clientcmdapi.AuthInfo{
		s.cfg.AdminKubeconfig():                         admin,
		keys.path("kube-scheduler.kubeconfig"):          {Token: s.ids.scheduler.token},
		keys.path("kube-controller-manager.kubeconfig"): {Token: s.ids.controllers.token},
	}
	for file, user := range files {
		if err := writeKubeconfig(file, s.cfg.URL(), keys.path("ca.crt"), user); err != nil {
			return err
		}
	}
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
	return os.WriteFile(s.cfg.auditPolicy(), []byte(policy), 0o600)
}

// waitReady waits until /readyz is 200.
func (s *Server) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.api.loopback)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	var last string
	for {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx)
		if err == nil {
			return nil
		}
		last = string(body)
		select {
		case err := <-s.errs:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the API server did not become ready: %w\n%s", ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// failed notes that a part has ended; it is an error unless all is ending.
func (s *Server) failed(part string, err error) {
	if err == nil {
		err = errors.New("ended by itself")
	}
	select {
	case s.errs <- fmt.Errorf("%s: %w", part, err):
	default:
	}
}

// ClientConfig is a way to the API through memory as one of Config.Accounts.
func (s *Server) ClientConfig(account string) (*rest.Config, error) {
	for i, a := range s.cfg.Accounts {
		if a.Name == account {
			return s.api.client(s.accounts[i]), nil
		}
	}
	return nil, fmt.Errorf("no account %q in this process", account)
}

// Err delivers the failure of a part of the control plane.
func (s *Server) Err() <-chan error { return s.errs }

// stopWithin bounds the wait for requests that are still under way.
const stopWithin = 15 * time.Second

// Stop ends etcd after the API server is gone; the context given to Start must
// have ended before, or Start have failed.
func (s *Server) Stop() {
	if s.api != nil {
		select {
		case <-s.api.gone:
		case <-time.After(stopWithin):
		}
	}
	if s.etcd != nil {
		s.etcd.Close()
		<-s.etcd.Server.StopNotify()
		removeSockets(s.cfg.DataDir)
	}
}
