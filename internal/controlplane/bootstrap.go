package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// nodeBindings let a machine with a bootstrap token ask for its certificate and
// have it approved and renewed. The API server's own policy has the roles but
// not these bindings.
var nodeBindings = map[string]struct{ role, group string }{
	"rollcall:node-bootstrapper": {"system:node-bootstrapper", "system:bootstrappers"},
	"rollcall:node-autoapprove":  {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"},
	"rollcall:node-renew":        {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
}

// bootstrap writes what the API needs before nodes and the accounts of this
// process can use it.
func (s *Server) bootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.api.loopback)
	if err != nil {
		return err
	}
	for name, b := range nodeBindings {
		group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}
		if err := bind(ctx, client, name, b.role, group); err != nil {
			return err
		}
	}
	for _, a := range s.cfg.Accounts {
		if err := a.grant(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// BootstrapToken makes a token with which a machine can ask for a node's
// certificate until it expires or is revoked.
func (s *Server) BootstrapToken(ctx context.Context, description string, life time.Duration) (token string, revoke func(context.Context) error, err error) {
	client, err := kubernetes.NewForConfig(s.api.loopback)
	if err != nil {
		return "", nil, err
	}
	var raw [11]byte // 6 and 16 hexadecimal digits
	if _, err := rand.Read(raw[:]); err != nil {
		return "", nil, err
	}
	digits := hex.EncodeToString(raw[:])
	id, secret := digits[:6], digits[6:]
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "description": description,
			"expiration":                     time.Now().Add(life).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
		},
	}
	secrets := client.CoreV1().Secrets(object.Namespace)
	if _, err := secrets.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return "", nil, fmt.Errorf("create a bootstrap token: %w", err)
	}
	revoke = func(ctx context.Context) error {
		if err := secrets.Delete(ctx, object.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("revoke the bootstrap token %s: %w", id, err)
		}
		return nil
	}
	return id + "." + secret, revoke, nil
}
