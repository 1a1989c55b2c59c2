package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is made anew at start.
	renewBefore = 90 * 24 * time.Hour
)

// pki is the directory of the cluster's keys and certificates. Keys are 0600 in
// a 0700 directory.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

// ensure makes what is missing or near its end: the CA, the front proxy's CA,
// the server's, the clients' and the service-account signing key. addresses are
// the IPs at which the API server is reached.
func (p pki) ensure(addresses []net.IP) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("create the certificate directory: %w", err)
	}
	ca, err := p.ensureCA("ca", "rollcall")
	if err != nil {
		return err
	}
	front, err := p.ensureCA("front-proxy-ca", "rollcall-front-proxy")
	if err != nil {
		return err
	}
	leaves := []leaf{
		{file: "apiserver", cn: "kube-apiserver", issuer: ca, server: true, ips: addresses, dns: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		{file: "apiserver-kubelet-client", cn: "kube-apiserver-kubelet-client", org: []string{"system:masters"}, issuer: ca},
		{file: "front-proxy-client", cn: "front-proxy-client", issuer: front},
		{file: "admin", cn: "rollcall-admin", org: []string{"system:masters"}, issuer: ca},
	}
	for _, l := range leaves {
		if err := p.ensureLeaf(l); err != nil {
			return err
		}
	}
	return p.ensureKey("service-account.key")
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

type leaf struct {
	file, cn string
	org      []string
	issuer   authority
	server   bool
	ips      []net.IP
	dns      []string
}

func (p pki) ensureCA(name, cn string) (authority, error) {
	if a, err := p.load(name); err == nil && time.Until(a.cert.NotAfter) > renewBefore {
		return a, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return authority{}, fmt.Errorf("read the certificate authority %s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("sign the certificate authority %s: %w", name, err)
	}
	if err := p.write(name, der, key); err != nil {
		return authority{}, err
	}
	return p.load(name)
}

func (p pki) ensureLeaf(l leaf) error {
	if a, err := p.load(l.file); err == nil && l.stillGood(a.cert) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	usage := x509.ExtKeyUsageClientAuth
	if l.server {
		usage = x509.ExtKeyUsageServerAuth
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: l.cn, Organization: l.org},
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		IPAddresses: l.ips, DNSNames: l.dns,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, l.issuer.cert, key.Public(), l.issuer.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", l.cn, err)
	}
	return p.write(l.file, der, key)
}

func (l leaf) stillGood(c *x509.Certificate) bool {
	if time.Until(c.NotAfter) < renewBefore || c.CheckSignatureFrom(l.issuer.cert) != nil {
		return false
	}
	for _, ip := range l.ips {
		if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func (p pki) load(name string) (authority, error) {
	certPEM, err := os.ReadFile(p.path(name + ".crt"))
	if err != nil {
		return authority{}, err
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return authority{}, fmt.Errorf("%s.crt holds no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return authority{}, err
	}
	key, err := keyutil.PrivateKeyFromFile(p.path(name + ".key"))
	if err != nil {
		return authority{}, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return authority{}, fmt.Errorf("%s.key cannot sign", name)
	}
	return authority{cert: cert, key: signer}, nil
}

// write stores the key before the certificate, so that a certificate on disk
// always has its key beside it.
func (p pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := p.writeKey(name+".key", key); err != nil {
		return err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return os.WriteFile(p.path(name+".crt"), out, 0o644)
}

func (p pki) writeKey(file string, key *ecdsa.PrivateKey) error {
	out, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.path(file), out, 0o600)
}

func (p pki) ensureKey(file string) error {
	if _, err := os.Stat(p.path(file)); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return p.writeKey(file, key)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // the system's random source is gone: nothing can be signed
	}
	return n
}
