package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// ServiceCIDR is where Services get their addresses.
const ServiceCIDR = "10.43.0.0/16"

// apiServer is a running API server.
type apiServer struct {
	loopback *rest.Config
	memory   *memoryListener
	done     chan error    // what its run ended with
	gone     chan struct{} // closed once it has ended
}

// startAPIServer serves the API on the configured address and on an in-memory
// listener; both lead into the same filter chain.
func startAPIServer(ctx context.Context, cfg Config, keys pki, etcd, tokens string) (*apiServer, error) {
	host, port, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("--api-address %q: %w; write HOST:PORT, such as 127.0.0.1:6443", cfg.Address, err)
	}
	opts := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, f := range opts.Flags().FlagSets {
		flags.AddFlagSet(f)
	}
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + host, "--secure-port=" + port,
		"--advertise-address=" + cfg.advertise().String(),
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true",
		"--client-ca-file=" + keys.path("ca.crt"),
		"--tls-cert-file=" + keys.path("apiserver.crt"), "--tls-private-key-file=" + keys.path("apiserver.key"),
		"--kubelet-client-certificate=" + keys.path("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + keys.path("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + keys.path("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + keys.path("front-proxy-client.crt"),
		"--proxy-client-key-file=" + keys.path("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + keys.path("service-account.key"),
		"--service-account-signing-key-file=" + keys.path("service-account.key"),
		"--token-auth-file=" + tokens,
		"--event-ttl=1h", "--profiling=false",
	}
	if cfg.AuditLog != "" {
		args = append(args, "--audit-log-path="+cfg.AuditLog, "--audit-log-maxsize=100", "--audit-log-maxbackup=5",
			"--audit-policy-file="+cfg.auditPolicy())
	}
	admitted := opts.Admission.GenericAdmission
	admitted.Plugins.Register(warningPlugin, newWarnings(cfg))
	admitted.RecommendedPluginOrder = append([]string{warningPlugin}, admitted.RecommendedPluginOrder...)
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("configure the API server: %w", err)
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, fmt.Errorf("configure the API server: %w", err)
	}
	completed, err := opts.Complete(ctx)
	if err != nil {
		return nil, fmt.Errorf("configure the API server: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, fmt.Errorf("configure the API server: %v", errs)
	}
	if completed.InformerName, err = cache.NewInformerName("kube-apiserver"); err != nil {
		return nil, err
	}
	config, err := apiserverapp.NewConfig(completed)
	if err != nil {
		return nil, fmt.Errorf("configure the API server: %w", err)
	}
	done, err := config.Complete()
	if err != nil {
		return nil, err
	}
	chain, err := apiserverapp.CreateServerChain(done)
	if err != nil {
		return nil, fmt.Errorf("build the API server: %w", err)
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("prepare the API server: %w", err)
	}
	s := &apiServer{loopback: rest.CopyConfig(chain.GenericAPIServer.LoopbackClientConfig), done: make(chan error, 1), gone: make(chan struct{})}
	s.loopback.QPS, s.loopback.Burst = -1, 0
	s.serveInMemory(ctx, chain.GenericAPIServer)
	go func() { s.done <- prepared.Run(ctx) }()
	return s, nil
}

// serveInMemory serves the API without a socket and without encryption to those
// in this process, who prove themselves by a token.
func (s *apiServer) serveInMemory(ctx context.Context, g *genericapiserver.GenericAPIServer) {
	s.memory = newMemoryListener()
	srv := &http.Server{Handler: g.Handler, ReadHeaderTimeout: 30 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = srv.Serve(s.memory) }()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
}

// client returns a configuration that reaches the API through memory as id.
// Requests are not limited on the client's side: the server's flow control is
// what limits them.
func (s *apiServer) client(id Identity) *rest.Config {
	c := &rest.Config{Host: "http://rollcall.in-memory", BearerToken: id.token, QPS: -1, UserAgent: "rollcall/" + id.User}
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	c.DisableCompression = true
	c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.memory.DialContext(ctx) }
	return c
}

// CheckPort says clearly when the address cannot be listened on.
func CheckPort(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--api-address %q: %w; write HOST:PORT, such as 127.0.0.1:6443", address, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("--api-address %q: the port must be a number from 1 to 65535", address)
	}
	if net.ParseIP(host) == nil {
		return fmt.Errorf("--api-address %q: the host must be an IP address, such as 127.0.0.1", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; stop what uses it (ss -ltnp), or choose another with --api-address", address, err)
	}
	return l.Close()
}
