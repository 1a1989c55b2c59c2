package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig (0600) that holds its certificates, so
// that it can be copied to another machine.
func writeKubeconfig(file, server, ca string, user *clientcmdapi.AuthInfo) error {
	caPEM, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("read the CA: %w", err)
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["rollcall"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
	cfg.AuthInfos["rollcall"] = user
	cfg.Contexts["rollcall"] = &clientcmdapi.Context{Cluster: "rollcall", AuthInfo: "rollcall"}
	cfg.CurrentContext = "rollcall"
	out, err := clientcmd.Write(*cfg)
	if err != nil {
		return err
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, out, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(tmp, file)
}

func certUser(keys pki, name string) (*clientcmdapi.AuthInfo, error) {
	cert, err := os.ReadFile(keys.path(name + ".crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keys.path(name + ".key"))
	if err != nil {
		return nil, err
	}
	return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}, nil
}
