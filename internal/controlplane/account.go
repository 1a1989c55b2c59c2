package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Account is a service account for a part of this process: it reaches the API
// through memory, yet with no more than the rights named here.
type Account struct {
	Namespace, Name string
	Rules           []rbacv1.PolicyRule
}

func (a Account) identity() Identity {
	return Identity{
		User:   "system:serviceaccount:" + a.Namespace + ":" + a.Name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace},
	}
}

// grant creates the service account and gives it its rights, as those of this
// program's version even where an older one has left others.
func (a Account) grant(ctx context.Context, client kubernetes.Interface) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	if _, err := client.CoreV1().ServiceAccounts(a.Namespace).Create(ctx, sa, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the service account %s/%s: %w", a.Namespace, a.Name, err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace + ":" + a.Name}, Rules: a.Rules}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the role of %s/%s: %w", a.Namespace, a.Name, err)
	}
	return bind(ctx, client, role.Name, role.Name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name})
}

// bind gives a cluster role to a subject, unless a binding of this name exists.
func bind(ctx context.Context, client kubernetes.Interface, name, role string, subject rbacv1.Subject) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind the role %s: %w", role, err)
	}
	return nil
}
