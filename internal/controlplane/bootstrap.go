package controlplane

import (
	"context"
	"fmt"

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

func (s *Server) bootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.api.loopback)
	if err != nil {
		return err
	}
	for name, b := range nodeBindings {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}},
		}
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind the role %s: %w", b.role, err)
		}
	}
	return nil
}
