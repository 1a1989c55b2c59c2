package manifests

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const countTimeout = 60 * time.Second

// TestManifests applies each file by itself and waits until every DaemonSet in it
// has the pods that this package counts on its fingers.
func TestManifests(t *testing.T) {
	files := sources(t)
	if found, _ := filepath.Glob("../../../shared/manifests/*.yaml"); len(found) == 0 {
		t.Log("no shared manifests beside this clone: only the project's own are tested")
	}
	ctx := context.Background()
	if deadline, ok := t.Deadline(); ok {
		// Leave time to end the process: after a panic of the test binary it would stay.
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-45*time.Second))
		defer cancel()
	}
	specs := fleet()
	c := newCluster(t, startCluster(t, specs))
	nodes := settle(ctx, t, c.client, specs)

	var daemonSets, reached, refused, goodFiles int
	for _, file := range files {
		if ctx.Err() != nil {
			t.Fatalf("out of time before %s; give `go test` a longer -timeout", file)
		}
		t.Run(strings.TrimPrefix(filepath.ToSlash(file), "../../"), func(t *testing.T) {
			a := c.apply(ctx, t, read(t, file))
			refused += len(a.refused)
			if len(a.daemonSets) == 0 {
				t.Error("no DaemonSet of this file was accepted")
			}
			for _, o := range a.daemonSets {
				daemonSets++
				want, got, err := c.count(ctx, o.GetNamespace(), o.GetName(), nodes)
				t.Logf("%s: %s/%s: expected %d, got %d", filepath.Base(file), o.GetNamespace(), o.GetName(), want, got)
				if err != nil {
					t.Errorf("%s/%s: %v", o.GetNamespace(), o.GetName(), err)
					continue
				}
				reached++
			}
			if err := c.remove(ctx, t, a); err != nil {
				t.Errorf("clean up: %v", err)
			}
			if !t.Failed() {
				goodFiles++
			}
		})
	}
	t.Logf("%d daemonsets in %d files reached their count; %d objects refused", reached, goodFiles, refused)
	if reached != daemonSets || goodFiles != len(files) {
		t.Errorf("%d of %d daemonsets and %d of %d files are as they should be", reached, daemonSets, goodFiles, len(files))
	}
}

// count waits until status and pods agree with the expected number.
func (c *cluster) count(ctx context.Context, namespace, name string, nodes []corev1.Node) (want, got int, err error) {
	err = poll(ctx, countTimeout, func(ctx context.Context) error {
		ds, err := c.client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want = expected(&ds.Spec.Template.Spec, nodes)
		if got, err = c.podsOf(ctx, ds); err != nil {
			return err
		}
		s := ds.Status
		if s.ObservedGeneration != ds.Generation || int(s.DesiredNumberScheduled) != want || int(s.CurrentNumberScheduled) != want || got != want {
			return fmt.Errorf("want %d; generation %d of %d is observed, desired %d, current %d, misscheduled %d, %d pods",
				want, s.ObservedGeneration, ds.Generation, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberMisscheduled, got)
		}
		return nil
	})
	return want, got, err
}

func (c *cluster) podsOf(ctx context.Context, ds *appsv1.DaemonSet) (int, error) {
	pods, err := c.client.CoreV1().Pods(ds.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range pods.Items {
		if p := &pods.Items[i]; metav1.IsControlledBy(p, ds) && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}
